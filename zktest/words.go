package zktest

// The four-letter words.
//
//   - srvr and stat give the build time in the form of ZooKeeper 3.4, which is the only one that go-zookeeper's
//     FLWSrvr reads.
//   - cons leaves out the asking connection, whose line go-zookeeper's FLWCons cannot read.

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
)

func (c *cluster) fourLetterWord(cn *conn, word string) {
	if cn.gone || cn.deafened {
		return
	}
	var answer string
	if !cn.ep.serving() && word != "ruok" {
		cn.out.put(outItem{data: []byte("This ZooKeeper instance is not currently serving requests\n")})
		c.finish(cn)
		return
	}
	if words := map[string]func(*endpoint) string{
		"ruok": func(*endpoint) string { return "imok" },
		"isro": func(*endpoint) string { return "rw" },
		"conf": c.wordConf, "cons": c.wordCons, "dump": c.wordDump, "envi": c.wordEnvi, "mntr": c.wordMntr,
		"srvr": c.wordSrvr, "stat": c.wordStat,
	}; words[word] == nil {
		answer = word + " is not executed because it is not in the whitelist.\n"
	} else {
		answer = words[word](cn.ep)
	}
	cn.out.put(outItem{data: []byte(answer)})
	c.finish(cn)
}

func (ep *endpoint) clients() []*conn {
	var all []*conn
	for cn := range ep.conns {
		if cn.session != nil {
			all = append(all, cn)
		}
	}
	slices.SortFunc(all, func(a, b *conn) int { return cmp.Compare(a.id, b.id) })
	return all
}

func (c *cluster) traffic(ep *endpoint) (received, sent int64) {
	for cn := range ep.conns {
		received += cn.stats.received
		sent += cn.stats.sent
	}
	return received, sent
}

func (c *cluster) wordSrvr(ep *endpoint) string {
	received, sent := c.traffic(ep)
	return fmt.Sprintf("Zookeeper version: %s\nLatency min/avg/max: 0/0.0/0\nReceived: %d\nSent: %d\nConnections: %d\n"+
		"Outstanding: 0\nZxid: %#x\nMode: %s\nNode count: %d\n",
		c.cfg.fullVersion(), received, sent, len(ep.conns), ep.zxid, ep.mode(), len(ep.tree.nodes))
}

func (c *cluster) wordStat(ep *endpoint) string {
	srvr := c.wordSrvr(ep)
	at := strings.Index(srvr, "Latency")
	var b strings.Builder
	b.WriteString(srvr[:at] + "Clients:\n")
	for _, cn := range ep.clients() {
		fmt.Fprintf(&b, " /%s[1](queued=0,recved=%d,sent=%d)\n", cn.nc.RemoteAddr(), cn.stats.received, cn.stats.sent)
	}
	return b.String() + "\n" + srvr[at:]
}

func (c *cluster) wordCons(ep *endpoint) string {
	var b strings.Builder
	for _, cn := range ep.clients() {
		fmt.Fprintf(&b, " /%s[1](queued=0,recved=%d,sent=%d,sid=%#x,lop=%s,est=%d,to=%d,lcxid=%#x,lzxid=%#x,"+
			"lresp=%d,llat=0,minlat=0,avglat=0,maxlat=0)\n",
			cn.nc.RemoteAddr(), cn.stats.received, cn.stats.sent, cn.session.id, cn.stats.lastOp,
			cn.stats.opened.UnixMilli(), cn.session.timeout.Milliseconds(), uint32(cn.stats.lastXid),
			uint64(cn.stats.lastZxid), cn.stats.last.UnixMilli())
	}
	return b.String() + "\n"
}

func (c *cluster) wordMntr(ep *endpoint) string {
	ephemerals := 0
	for _, paths := range ep.tree.ephemerals {
		ephemerals += len(paths)
	}
	size := 0
	for path, n := range ep.tree.nodes {
		size += len(path) + len(n.data)
	}
	received, sent := c.traffic(ep)
	var b strings.Builder
	for _, kv := range []struct {
		key   string
		value any
	}{
		{"version", c.cfg.fullVersion()}, {"server_state", ep.mode()}, {"peer_state", ep.mode()},
		{"avg_latency", "0.0"}, {"max_latency", 0}, {"min_latency", 0},
		{"packets_received", received}, {"packets_sent", sent}, {"outstanding_requests", 0},
		{"num_alive_connections", len(ep.clients())}, {"znode_count", len(ep.tree.nodes)},
		{"watch_count", ep.data.size() + ep.child.size()}, {"ephemerals_count", ephemerals},
		{"approximate_data_size", size}, {"global_sessions", len(c.sessions)}, {"local_sessions", 0},
	} {
		fmt.Fprintf(&b, "zk_%s\t%v\n", kv.key, kv.value)
	}
	return b.String()
}

func (c *cluster) wordDump(ep *endpoint) string {
	var b strings.Builder
	ids := slices.Sorted(maps.Keys(c.sessions))
	fmt.Fprintf(&b, "SessionTracker dump:\nGlobal Sessions(%d):\n", len(ids))
	for _, id := range ids {
		fmt.Fprintf(&b, "%#x\t%dms\n", id, c.sessions[id].timeout.Milliseconds())
	}
	fmt.Fprintf(&b, "ephemeral nodes dump:\nSessions with Ephemerals (%d):\n", len(ep.tree.ephemerals))
	for _, id := range slices.Sorted(maps.Keys(ep.tree.ephemerals)) {
		fmt.Fprintf(&b, "%#x:\n", id)
		for _, path := range slices.Sorted(maps.Keys(ep.tree.ephemerals[id])) {
			fmt.Fprintf(&b, "\t%s\n", path)
		}
	}
	fmt.Fprintf(&b, "Connections dump:\nConnections Sets (1)/(%d):\n", len(ep.clients()))
	for _, cn := range ep.clients() {
		fmt.Fprintf(&b, "\tip: /%s sessionId: %#x\n", cn.nc.RemoteAddr(), cn.session.id)
	}
	return b.String()
}

func (c *cluster) wordEnvi(*endpoint) string {
	return fmt.Sprintf("Environment:\nzookeeper.version=%s\nhost.name=localhost\njava.version=none\njava.vendor=%s\nos.name=%s\nos.arch=%s\n",
		c.cfg.fullVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func (c *cluster) wordConf(ep *endpoint) string {
	return fmt.Sprintf("clientPort=%s\ntickTime=%d\nminSessionTimeout=%d\nmaxSessionTimeout=%d\nserverId=%d\n",
		ep.addr[strings.LastIndexByte(ep.addr, ':')+1:], c.cfg.tick.Milliseconds(),
		c.cfg.minTimeout.Milliseconds(), c.cfg.maxTimeout.Milliseconds(), ep.id-1)
}
