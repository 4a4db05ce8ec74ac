package conformance

// These tests attack quotas: zktest counts and rejects the same writes as a real server.

import (
	"fmt"
	"testing"

	"github.com/zklock/zklock/internal/wire"
	"github.com/zklock/zklock/internal/zkserver"
	"github.com/zklock/zklock/zktest"
)

// TestQuotas makes random writes below two limits, one of them below the other, and compares each
// reply, and the stats after it.
func TestQuotas(t *testing.T) {
	for _, enforced := range []bool{true, false} {
		t.Run(fmt.Sprintf("enforced %v", enforced), func(t *testing.T) {
			real := newSide(t, "real", startReal(t, zkserver.Property("zookeeper.enforceQuota", fmt.Sprint(enforced))))
			opts := append([]zktest.Option{}, options...)
			if enforced {
				opts = append(opts, zktest.WithConfig("enforceQuota=true"))
			}
			srv := zktest.Start(t, opts...)
			d := newRun(t, fixedSeed, versions[0], real, subject{srv, newSide(t, "zktest", srv.Addr())}, nil)
			for i := range sessions {
				d.connect("new session", i, wire.ConnectRequest{Timeout: 30_000})
			}
			refused := quotas(d, 400)
			if enforced != (refused > 20) {
				t.Fatalf("%d writes were refused for a quota", refused)
			}
		})
	}
}

// quotas makes the requests and returns how many exceeded a quota.
func quotas(d *run, ops int) (refused int) {
	open := []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "world", ID: "anyone"}}}
	create := func(path, data string) wire.MultiOp {
		return wire.MultiOp{Op: wire.OpCreate, Path: path, Version: -1, Create: wire.CreateRequest{Path: path, Data: []byte(data), ACL: open, TTL: -1}}
	}
	ask := func(req request) {
		d.n++
		if d.request(fmt.Sprint(req), 0, req) == wire.QuotaExceeded {
			refused++
		}
	}
	quota := func(path, limits string) {
		for _, op := range []wire.MultiOp{create("/zookeeper/quota"+path, ""), create("/zookeeper/quota"+path+"/zookeeper_limits", limits),
			create("/zookeeper/quota"+path+"/zookeeper_stats", "count=0,bytes=0")} {
			ask(request{op: wire.OpCreate, body: op.Create})
		}
	}
	for _, path := range []string{"/q", "/q/x", "/p"} {
		ask(request{op: wire.OpCreate, body: create(path, "some").Create})
	}
	quota("/q", "count=3,bytes=10=;byteHardLimit=35;countHardLimit=8")
	quota("/q/x", "count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=3")
	quota("/none", "count=1,bytes=-1")
	// A multi is checked against the state before it, even if it frees room itself, or takes the
	// last room twice.
	ask(request{op: wire.OpCreate, body: create("/q/x/1", "").Create})
	ask(request{op: wire.OpMulti, body: wire.MultiRequest{Ops: []wire.MultiOp{create("/q/x/2", ""), create("/q/x/3", "")}}})
	ask(request{op: wire.OpMulti, body: wire.MultiRequest{Ops: []wire.MultiOp{{Op: wire.OpDelete, Path: "/q/x/1", Version: -1}, create("/q/x/4", "")}}})
	path := func() string {
		return pick(d.gen, "/q", "/q", "/q/x", "/p") + pick(d.gen, "", "/a", "/b", "/c", "/d", "/a/a", "/b/b", "/x/e")
	}
	data := func() string { return "0123456789ABCDEFGHIJ"[:d.gen.IntN(20)] }
	op := func() wire.MultiOp {
		o := create(path(), data())
		o.Op, o.Data = pick(d.gen, wire.OpCreate, wire.OpCreate, wire.OpCreate, wire.OpDelete, wire.OpSetData), o.Create.Data
		return o
	}
	for i := range ops {
		switch o := op(); {
		case i%100 == 99: // the limits go and come
			at := "/zookeeper/quota/q/x/zookeeper_limits"
			ask(request{op: wire.OpDelete, body: wire.PathVersionRequest{Path: at, Version: -1}})
			ask(request{op: wire.OpCreate, body: create(fmt.Sprintf("/q/x/extra-%d", i), "1").Create})
			ask(request{op: wire.OpCreate, body: create(at, "count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=3").Create})
		case d.gen.IntN(4) == 0:
			ask(request{op: wire.OpMulti, body: wire.MultiRequest{Ops: []wire.MultiOp{o, op(), op()}}})
		case o.Op == wire.OpCreate:
			ask(request{op: o.Op, body: o.Create})
		case o.Op == wire.OpDelete:
			ask(request{op: o.Op, body: wire.PathVersionRequest{Path: o.Path, Version: pick[int32](d.gen, -1, -1, 7)}})
		default:
			ask(request{op: o.Op, body: wire.SetDataRequest{Path: o.Path, Data: o.Data, Version: pick[int32](d.gen, -1, -1, 7)}})
		}
		of := pick(d.gen, "/q", "/q", "/q/x", "/q/x", "/none")
		ask(request{op: wire.OpGetData, body: wire.PathWatchRequest{Path: "/zookeeper/quota" + of + "/zookeeper_stats"}})
	}
	return refused
}
