package conformance

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/rawzk"
	"github.com/zklock/zklock/internal/wire"
	"github.com/zklock/zklock/zktest"
)

var (
	opsFlag  = flag.Int("ops", intFromEnv("ZKLOCK_CONFORMANCE_OPS", 3000), "operations of each differential run")
	seedFlag = flag.Uint64("seed", uint64(intFromEnv("ZKLOCK_CONFORMANCE_SEED", 0)), "seed of the fresh run; 0 takes the clock's")
)

func intFromEnv(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

func TestDifferential_FixedSeed(t *testing.T) { differential(t, 20260101, *opsFlag) }

func TestDifferential_FreshSeed(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	differential(t, seed, *opsFlag)
}

// sessions is how many clients there are; three make every relation between them possible.
const sessions = 3

// differential makes the same random operations on a fresh real server and on a fresh one of ours. The first
// difference in a reply or an event ends it.
func differential(t *testing.T, seed uint64, ops int) {
	t.Logf("seed %d, %d operations", seed, ops)
	superDigest := zktest.Digest("root:secret")
	real := newSide(t, "real", startReal(t, superDigest), sessions)
	srv := zktest.Start(t, zktest.WithTTLNodes(), zktest.WithContainerCheck(24*time.Hour), zktest.WithSuperDigest(superDigest))
	fake := newSide(t, "zktest", srv.Addr(), sessions)

	d := &run{t: t, real: real, fake: fake}
	d.gen = generator{Rand: rand.New(rand.NewPCG(seed, 0)), zxid: srv.Zxid, recent: new([]string)}
	for i := range sessions {
		d.connect("new session", i, wire.ConnectRequest{Timeout: 30_000})
	}
	codes := make(map[wire.Op]map[wire.Code]int)
	for d.n = 1; d.n <= ops; d.n++ {
		i := d.gen.IntN(sessions)
		if d.gen.IntN(100) == 0 {
			d.disturb(i)
			continue
		}
		req := d.gen.next()
		reply := d.both(fmt.Sprintf("session %d: %v", i, req), i, req)
		if codes[req.op] == nil {
			codes[req.op] = make(map[wire.Code]int)
		}
		codes[req.op][reply]++
		if req.closes {
			d.reattach(i)
		}
	}
	t.Logf("0 differences in %d operations; zxid %#x, %d changes; operations by kind and error code:%s",
		ops, srv.Zxid(), len(srv.History()), table(codes))
}

// table shows that the run met every answer, not only many.
func table(codes map[wire.Op]map[wire.Code]int) string {
	var b strings.Builder
	for _, op := range slices.Sorted(maps.Keys(codes)) {
		fmt.Fprintf(&b, "\n    %-20v", op)
		for _, code := range slices.Backward(slices.Sorted(maps.Keys(codes[op]))) {
			fmt.Fprintf(&b, " %d:%d", code, codes[op][code])
		}
	}
	return b.String()
}

// run is one comparison in progress.
type run struct {
	t          *testing.T
	real, fake *side
	gen        generator
	n          int
	generation int
}

// both makes a request on both sides and compares everything that came of it. It returns the error code.
func (d *run) both(what string, i int, req request) wire.Code {
	d.t.Helper()
	start := time.Now()
	defer func() {
		if e := time.Since(start); e > time.Second {
			d.t.Log("SLOW", what, e)
		}
	}()
	real, fake := d.real.call(i, req), d.fake.call(i, req)
	requireSame(d.t, fmt.Sprintf("operation %d, %s", d.n, what), real, fake)
	var xid, zxid, code int64
	var path string
	if n, _ := fmt.Sscanf(real.reply, "xid %d zxid 0x%x err %d: %q", &xid, &zxid, &code, &path); n == 4 {
		switch req.op {
		case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL:
			*d.gen.recent = append(*d.gen.recent, path)
		}
	}
	return wire.Code(code)
}

type text string

func (s text) String() string { return string(s) }

func (d *run) connect(what string, i int, req wire.ConnectRequest) {
	d.t.Helper()
	d.generation++
	real, fake := d.real.connect(i, req, d.generation), d.fake.connect(i, req, d.generation)
	requireSame(d.t, fmt.Sprintf("operation %d, %s %d", d.n, what, i), text(real), text(fake))
}

// reattach takes a session up again after its connection has gone, and opens a new one if it is gone too.
func (d *run) reattach(i int) {
	d.t.Helper()
	d.generation++
	real := d.real.connect(i, d.real.keys[i], d.generation)
	fake := d.fake.connect(i, d.fake.keys[i], d.generation)
	requireSame(d.t, fmt.Sprintf("operation %d, reattach session %d", d.n, i), text(real), text(fake))
	if d.real.conns[i].Session.SessionID == 0 {
		d.connect("new session", i, wire.ConnectRequest{Timeout: 30_000})
	}
}

// disturb does something with a connection or a session.
func (d *run) disturb(i int) {
	d.t.Helper()
	switch d.gen.IntN(6) {
	case 0: // the connection is lost, the session goes on
		d.reattach(i)
	case 1: // the session is closed; a new one takes its place
		d.both(fmt.Sprintf("close session %d", i), i, request{op: wire.OpClose, closes: true, unordered: true})
		d.reattach(i) // says that it is gone
	case 2: // a wrong password: the old connection goes all the same
		real, fake := d.real.keys[i], d.fake.keys[i]
		d.real.keys[i].Password, d.fake.keys[i].Password = make([]byte, 16), make([]byte, 16)
		d.generation++
		oldReal, oldFake := d.real.conns[i], d.fake.conns[i]
		d.real.conns[i], d.fake.conns[i] = nil, nil
		realSaid := d.real.connect(i, d.real.keys[i], d.generation)
		fakeSaid := d.fake.connect(i, d.fake.keys[i], d.generation)
		requireSame(d.t, fmt.Sprintf("operation %d, wrong password %d", d.n, i), text(realSaid), text(fakeSaid))
		requireSame(d.t, fmt.Sprintf("operation %d, the old connection of %d", d.n, i), ended(oldReal), ended(oldFake))
		d.real.keys[i], d.fake.keys[i] = real, fake
		d.reattach(i)
	case 3: // a client that has seen the future, and one with odd wishes for its timeout
		d.connect("from the future", i, wire.ConnectRequest{Timeout: 30_000, LastZxidSeen: d.gen.zxid() + 1000})
		d.reattach(i)
	case 4:
		keys := [2]wire.ConnectRequest{d.real.keys[i], d.fake.keys[i]}
		for side, s := range []*side{d.real, d.fake} {
			s.keys[i].Timeout = pick(generator{Rand: rand.New(rand.NewPCG(uint64(d.n), 0))}, int32(1), 10_000, 30_000, 1_000_000)
			s.keys[i].HasReadOnly = true
			_ = side
		}
		d.reattach(i)
		d.real.keys[i].Timeout, d.fake.keys[i].Timeout = keys[0].Timeout, keys[1].Timeout
		d.real.keys[i].HasReadOnly, d.fake.keys[i].HasReadOnly = false, false
		d.reattach(i)
	case 5: // a frame no server reads
		for _, s := range []*side{d.real, d.fake} {
			require.NoError(d.t, s.conns[i].Write([]byte{0x7f, 0xff, 0xff, 0xff}))
		}
		requireSame(d.t, fmt.Sprintf("operation %d, too long a frame on %d", d.n, i), ended(d.real.conns[i]), ended(d.fake.conns[i]))
		d.reattach(i)
	}
}

// ended reads what is left on a connection up to its end.
func ended(c *rawzk.Conn) text {
	defer c.Close()
	start := time.Now()
	defer func() {
		if e := time.Since(start); e > time.Second {
			println("SLOW ended", e.String())
		}
	}()
	said := "nothing"
	for {
		r, err := c.Receive()
		if err != nil {
			if e, ok := err.(interface{ Timeout() bool }); ok && e.Timeout() {
				return text(said + ", still open")
			}
			return text(said + ", closed")
		}
		said = fmt.Sprintf("%v", r.Header)
	}
}
