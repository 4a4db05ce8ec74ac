package zktest

// The four-letter words, with the bytes of a released server. go-zookeeper's FLWSrvr fails on them, as it does on real servers:
// since ZooKeeper 3.7 the build date begins with the year. Its FLWCons fails on the line of the connection that asks.
//
//   - There is no disk, so the directories of conf are empty and have size 0.
//   - There is no virtual machine, so the Java entries of envi say what stands for it, or <NA>.
//   - A leader serialises no proposals, so their sizes stay -1, as on a leader that has had none.

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/zklock/zklock/internal/wire"
)

// knownWords are those of ZooKeeper 3.8 and 3.9.
var knownWords = []string{"conf", "cons", "crst", "dirs", "dump", "envi", "gtmk", "hash", "isro", "mntr", "ruok", "srst", "srvr", "stat",
	"stmk", "wchc", "wchp", "wchs"}

func (c *cluster) fourLetterWord(cn *conn, word string) {
	if cn.gone || cn.deafened {
		return
	}
	if !slices.Contains(knownWords, word) {
		c.forget(cn) // it is the length of a frame that is too long
		return
	}
	cn.stats.received++
	words := map[string]func(*endpoint) string{
		"ruok": func(*endpoint) string { return "imok" },
		"isro": func(*endpoint) string { return "rw" },
		"conf": c.wordConf, "cons": c.wordCons, "dump": c.wordDump, "envi": c.wordEnvi, "mntr": c.wordMntr,
		"srvr": c.wordSrvr, "stat": c.wordStat,
	}
	var answer string
	switch {
	case words[word] == nil:
		answer = word + " is not executed because it is not in the whitelist.\n"
	case cn.ep.serving(), word == "ruok", word == "envi":
		answer = words[word](cn.ep)
	case word == "isro":
		answer = "null"
	default:
		answer = "This ZooKeeper instance is not currently serving requests\n"
	}
	cn.out.put(outItem{data: []byte(answer)})
	c.finish(cn)
}

// clients returns all connections, in the order in which they came.
func (ep *endpoint) clients() []*conn {
	return slices.SortedFunc(maps.Keys(ep.conns), func(a, b *conn) int { return cmp.Compare(a.id, b.id) })
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
	s := fmt.Sprintf("Zookeeper version: %s\nLatency min/avg/max: 0/0.0/0\nReceived: %d\nSent: %d\nConnections: %d\n"+
		"Outstanding: 0\nZxid: %#x\nMode: %s\nNode count: %d\n",
		c.cfg.fullVersion(), received, sent, len(ep.conns), ep.zxid, ep.mode(), len(ep.tree.nodes))
	if ep.mode() == leading.String() {
		s += "Proposal sizes last/min/max: -1/-1/-1\n"
	}
	return s
}

func (c *cluster) wordStat(ep *endpoint) string {
	version, rest, _ := strings.Cut(c.wordSrvr(ep), "\n")
	var b strings.Builder
	b.WriteString(version + "\nClients:\n")
	for _, cn := range ep.clients() {
		b.WriteString(cn.brief() + ")\n")
	}
	return b.String() + "\n" + rest
}

// brief is how stat and cons begin their line for a connection. The number in brackets is 1 while the server reads from it.
func (cn *conn) brief() string {
	reads := 1
	if cn.session == nil && cn.stats.received > 0 {
		reads = 0 // it has sent a word
	}
	return fmt.Sprintf(" /%s[%d](queued=0,recved=%d,sent=%d", cn.nc.RemoteAddr(), reads, cn.stats.received, cn.stats.sent)
}

// lops is how cons spells the last operation. SESS is the opening of a session; a connection that has taken one up, and done
// nothing yet, has null.
var lops = map[wire.Op]string{
	wire.OpConnect: "SESS", wire.OpPing: "PING", wire.OpMulti: "MULT", wire.OpMultiRead: "MLTR", wire.OpCreate: "CREA",
	wire.OpCreate2: "CREA", wire.OpCreateTTL: "CREA", wire.OpCreateContainer: "CREA", wire.OpDelete: "DELE", wire.OpSetData: "SETD",
	wire.OpReconfig: "RECO", wire.OpSetACL: "SETA", wire.OpClose: "CLOS", wire.OpSync: "SYNC", wire.OpCheck: "CHEC",
	wire.OpExists: "EXIS", wire.OpGetData: "GETD", wire.OpSetWatches: "SETW", wire.OpSetWatches2: "STW2", wire.OpAddWatch: "ADDW",
	wire.OpGetACL: "GETA", wire.OpGetChildren: "GETC", wire.OpGetAllChildrenNumber: "GETACN", wire.OpGetChildren2: "GETC",
	wire.OpCheckWatches: "CHKW", wire.OpRemoveWatches: "REMW", wire.OpWhoAmI: "HOMI", wire.OpGetEphemerals: "GETE",
}

// lop is the word for an operation. A write that failed, other than a multi, has NA.
func lop(op wire.Op, code wire.Code) string {
	if word, ok := lops[op]; ok && (code == wire.OK || !isWrite(op)) {
		return word
	}
	return "NA"
}

// replied notes a reply for cons. Those to auth and sasl do not count.
func (s *connStats) replied(op wire.Op, h wire.ReplyHeader) {
	if op == wire.OpAuth || op == wire.OpSASL {
		return
	}
	s.lastOp, s.lastZxid, s.last = lop(op, h.Err), h.Zxid, time.Now()
	if h.Xid >= 0 { // others stand for no request of the client's own
		s.lastXid = h.Xid
	}
}

func (c *cluster) wordCons(ep *endpoint) string {
	var b strings.Builder
	for _, cn := range ep.clients() {
		b.WriteString(cn.brief())
		if cn.session != nil {
			fmt.Fprintf(&b, ",sid=%#x,lop=%s,est=%d,to=%d,lcxid=%#x,lzxid=%#x,lresp=%d,llat=0,minlat=0,avglat=0,maxlat=0",
				cn.session.id, cn.stats.lastOp, cn.stats.opened.UnixMilli(), cn.session.timeout.Milliseconds(),
				cn.stats.lastXid, cn.stats.lastZxid, max(0, cn.stats.last.Sub(c.epoch).Milliseconds()))
		}
		b.WriteString(")\n")
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
		{"num_alive_connections", len(ep.conns)}, {"znode_count", len(ep.tree.nodes)},
		{"watch_count", ep.data.size() + ep.child.size()}, {"ephemerals_count", ephemerals},
		{"approximate_data_size", size}, {"global_sessions", len(c.sessions)}, {"local_sessions", 0},
	} {
		fmt.Fprintf(&b, "zk_%s\t%v\n", kv.key, kv.value)
	}
	return b.String()
}

func (c *cluster) wordDump(ep *endpoint) string {
	var b strings.Builder
	b.WriteString("SessionTracker dump:\n")
	if ids := slices.Sorted(maps.Keys(c.sessions)); ep.leads() {
		due := make(map[time.Time][]string)
		for _, id := range ids {
			at := c.sessions[id].expires
			due[at] = append(due[at], fmt.Sprintf("%#x", id))
		}
		b.WriteString("Session " + expirySets(due))
	} else {
		fmt.Fprintf(&b, "Global Sessions(%d):\n", len(ids))
		for _, id := range ids {
			fmt.Fprintf(&b, "%#x\t%dms\n", id, c.sessions[id].timeout.Milliseconds())
		}
	}
	fmt.Fprintf(&b, "ephemeral nodes dump:\nSessions with Ephemerals (%d):\n", len(ep.tree.ephemerals))
	for _, id := range slices.Sorted(maps.Keys(ep.tree.ephemerals)) {
		fmt.Fprintf(&b, "%#x:\n", id)
		for _, path := range slices.Sorted(maps.Keys(ep.tree.ephemerals[id])) {
			fmt.Fprintf(&b, "\t%s\n", path)
		}
	}
	due := make(map[time.Time][]string)
	for _, cn := range ep.clients() {
		// A connection counts as dead with its session, or ten seconds after it came; either is looked at every ten seconds.
		at := cn.stats.opened.Add(10 * time.Second)
		if cn.session != nil {
			at = cn.session.expires
		}
		at = at.Truncate(10 * time.Second).Add(10 * time.Second)
		due[at] = append(due[at], fmt.Sprintf("ip: /%s sessionId: %#x", cn.nc.RemoteAddr(), cn.sessionID()))
	}
	b.WriteString("Connections dump:\nConnections " + expirySets(due))
	return b.String()
}

// expirySets lists what is due by the time when it is.
func expirySets(due map[time.Time][]string) string {
	var sets strings.Builder
	n := 0
	for _, at := range slices.SortedFunc(maps.Keys(due), time.Time.Compare) {
		n += len(due[at])
		fmt.Fprintf(&sets, "%d expire at %s:\n", len(due[at]), at.Format("Mon Jan 02 15:04:05 MST 2006"))
		for _, what := range due[at] {
			fmt.Fprintf(&sets, "\t%s\n", what)
		}
	}
	return fmt.Sprintf("Sets (%d)/(%d):\n%s", len(due), n, &sets)
}

func (c *cluster) wordEnvi(*endpoint) string {
	const na = "<NA>"
	return fmt.Sprintf("Environment:\nzookeeper.version=%s\nhost.name=localhost\njava.version=%s\njava.vendor=zktest\njava.home=%s\n"+
		"java.class.path=%s\njava.library.path=%s\njava.io.tmpdir=%s\njava.compiler=%s\nos.name=%s\nos.arch=%s\nos.version=%s\n"+
		"user.name=%s\nuser.home=%s\nuser.dir=%s\nos.memory.free=0MB\nos.memory.max=0MB\nos.memory.total=0MB\n",
		c.cfg.fullVersion(), runtime.Version(), na, na, na, os.TempDir(), na, runtime.GOOS, runtime.GOARCH, na, na, na, na)
}

func (c *cluster) wordConf(ep *endpoint) string {
	id := ep.id
	if ep.replica == nil {
		id = 0
	}
	s := fmt.Sprintf("clientPort=%s\nsecureClientPort=-1\ndataDir=\ndataDirSize=0\ndataLogDir=\ndataLogSize=0\ntickTime=%d\n"+
		"maxClientCnxns=0\nminSessionTimeout=%d\nmaxSessionTimeout=%d\nclientPortListenBacklog=-1\nserverId=%d\n",
		ep.addr[strings.LastIndexByte(ep.addr, ':')+1:], c.cfg.tick.Milliseconds(),
		c.cfg.minTimeout.Milliseconds(), c.cfg.maxTimeout.Milliseconds(), id)
	if ep.replica == nil {
		return s
	}
	s += fmt.Sprintf("initLimit=%d\nsyncLimit=%d\nelectionAlg=3\nelectionPort=3888\nquorumPort=2888\npeerType=0\nmembership: \n",
		c.cfg.syncLimit, c.cfg.syncLimit)
	for _, m := range c.endpoints {
		s += fmt.Sprintf("server.%d=%s:2888:3888:participant\n", m.id, m.addr[:strings.LastIndexByte(m.addr, ':')])
	}
	return s + "version=0"
}
