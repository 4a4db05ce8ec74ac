package zktest

// The four-letter words, byte by byte as a released server returns them. go-zookeeper's FLWSrvr
// fails on them, as it does on real servers: since ZooKeeper 3.7 the build date begins with the
// year. Its FLWCons fails on the line of its own connection.
//
//   - The server has no disk, so the directories of conf are empty and have size 0.
//   - It has no virtual machine, so the Java entries of envi name a replacement, or <NA>.
//   - A leader serialises no proposals, so their sizes remain -1, as on a leader that has had none.

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zklock/zklock/internal/wire"
)

// Word returns the server's response to a four-letter word, such as mntr, whether or not it is in
// the whitelist, and without a connection that the server would count. The response is empty if the
// server is stopped or frozen, or if the word does not exist.
func (s *Server) Word(word string) string { return s.ep.word(word) }

// Word returns the member's response to a four-letter word, like [Server.Word].
func (m *Member) Word(word string) string { return m.ep.word(word) }

func (ep *endpoint) word(word string) (answer string) {
	ep.c.call(func() {
		if say := ep.c.words(ep, word); say != nil && ep.listener != nil && !ep.frozen() {
			answer = say(ep)
		}
	})
	return answer
}

func (c *cluster) fourLetterWord(cn *conn, word string, mask int64) {
	if cn.gone || cn.deafened {
		return
	}
	say := c.words(cn.ep, word)
	if say == nil {
		c.forget(cn) // it is the length of a frame that is too long
		return
	}
	cn.got(4)
	allowed := c.cfg.answers(word)
	if !allowed {
		say = says(word + " is not executed because it is not in the whitelist.\n")
	}
	if word == "stmk" && allowed {
		cn.ep.traceMask, say = mask, says(strconv.FormatInt(mask, 10))
	}
	if answer := say(cn.ep); answer != "" {
		cn.out.put(outItem{data: []byte(answer)})
		cn.gave(0)
	}
	c.finish(cn)
}

func says(answer string) func(*endpoint) string { return func(*endpoint) string { return answer } }

// words returns the function for a word, or nil if the word does not exist.
func (c *cluster) words(ep *endpoint, word string) func(*endpoint) string {
	say := map[string]func(*endpoint) string{
		"conf": c.wordConf, "cons": c.wordCons, "crst": c.wordCrst, "dirs": says("datadir_size: 0\nlogdir_size: 0\n"),
		"dump": c.wordDump, "envi": c.wordEnvi, "gtmk": says(strconv.FormatInt(ep.traceMask, 10)), "hash": says(""), "isro": says("rw"), "mntr": c.wordMntr,
		"ruok": says("imok"), "srst": c.wordSrst, "srvr": c.wordSrvr, "stat": c.wordStat, "stmk": says(""),
		"wchc": c.wordWchc, "wchp": c.wordWchp, "wchs": c.wordWchs,
	}[word]
	switch {
	case say == nil, ep.serving(), word == "ruok", word == "envi", word == "gtmk", word == "stmk":
		return say
	case word == "isro":
		return says("null")
	}
	return says("This ZooKeeper instance is not currently serving requests\n")
}

// clients returns all connections in the order of their arrival, except those that will be closed.
func (ep *endpoint) clients() (all []*conn) {
	for cn := range ep.conns {
		if !cn.deafened {
			all = append(all, cn)
		}
	}
	slices.SortFunc(all, func(a, b *conn) int { return cmp.Compare(a.id, b.id) })
	return all
}

func (c *cluster) wordSrvr(ep *endpoint) string {
	latency := ep.stats.requests()
	_, _, least, most := latency.sum()
	s := fmt.Sprintf("Zookeeper version: %s\nLatency min/avg/max: %d/%s/%d\nReceived: %d\nSent: %d\nConnections: %d\n"+
		"Outstanding: 0\nZxid: %#x\nMode: %s\nNode count: %d\n",
		c.cfg.fullVersion(), least, latency.average(), most, ep.stats.received, ep.stats.sent, len(ep.clients()), ep.zxid, ep.mode(), len(ep.tree.nodes))
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

// brief returns the start of a connection's line in stat and cons. The number in brackets is 1
// while the server reads from it.
func (cn *conn) brief() string {
	reads := 1
	if cn.session == nil && cn.stats.received > 0 {
		reads = 0 // a word has arrived
	}
	return fmt.Sprintf(" /%s[%d](queued=0,recved=%d,sent=%d", cn.nc.RemoteAddr(), reads, cn.stats.received, cn.stats.sent)
}

// lops holds cons's names of the last operation. SESS is the creation of a session; a connection
// that has re-attached to one, and sent nothing yet, has null.
var lops = map[wire.Op]string{
	wire.OpConnect: "SESS", wire.OpPing: "PING", wire.OpMulti: "MULT", wire.OpMultiRead: "MLTR", wire.OpCreate: "CREA",
	wire.OpCreate2: "CREA", wire.OpCreateTTL: "CREA", wire.OpCreateContainer: "CREA", wire.OpDelete: "DELE", wire.OpSetData: "SETD",
	wire.OpReconfig: "RECO", wire.OpSetACL: "SETA", wire.OpClose: "CLOS", wire.OpSync: "SYNC", wire.OpCheck: "CHEC",
	wire.OpExists: "EXIS", wire.OpGetData: "GETD", wire.OpSetWatches: "SETW", wire.OpSetWatches2: "STW2", wire.OpAddWatch: "ADDW",
	wire.OpGetACL: "GETA", wire.OpGetChildren: "GETC", wire.OpGetAllChildrenNumber: "GETACN", wire.OpGetChildren2: "GETC",
	wire.OpCheckWatches: "CHKW", wire.OpRemoveWatches: "REMW", wire.OpWhoAmI: "HOMI", wire.OpGetEphemerals: "GETE",
}

// lop returns the name of an operation. A failed write, other than a multi, has NA.
func lop(op wire.Op, code wire.Code) string {
	if word, ok := lops[op]; ok && (code == wire.OK || !isWrite(op)) {
		return word
	}
	return "NA"
}

func (c *cluster) wordCons(ep *endpoint) string {
	var b strings.Builder
	for _, cn := range ep.clients() {
		b.WriteString(cn.brief())
		if st := &cn.stats; cn.session != nil {
			fmt.Fprintf(&b, ",sid=%#x,lop=%s,est=%d,to=%d", cn.session.id, st.lastOp, st.opened.UnixMilli(), cn.session.timeout.Milliseconds())
			if st.lastXid >= 0 {
				fmt.Fprintf(&b, ",lcxid=%#x", st.lastXid)
			}
			count, total, least, most := st.latency.sum()
			if !st.reset {
				least = 0
			}
			fmt.Fprintf(&b, ",lzxid=%#x,lresp=%d,llat=%d,minlat=%d,avglat=%d,maxlat=%d",
				uint64(st.lastZxid), st.lastReply, st.lastLatency, least, total/max(count, 1), most)
		}
		b.WriteString(")\n")
	}
	return b.String() + "\n"
}

func (c *cluster) wordCrst(ep *endpoint) string {
	for cn := range ep.conns {
		cn.stats = connStats{opened: cn.stats.opened, lastOp: "NA", lastXid: -1, lastZxid: -1, latency: latency{}, reset: true}
	}
	return "Connection stats reset.\n"
}

func (c *cluster) wordSrst(ep *endpoint) string {
	ep.stats = newServerStats(ep.stats.started)
	return "Server stats reset.\n"
}

// The words about watches report only watches for data, not for children.
func (c *cluster) wordWchs(ep *endpoint) string {
	return fmt.Sprintf("%d connections watching %d paths\nTotal watches:%d\n", len(ep.data.byConn), len(ep.data.byPath), ep.data.size())
}

func (c *cluster) wordWchc(ep *endpoint) string {
	var b strings.Builder
	for _, cn := range ep.clients() {
		paths, watching := ep.data.byConn[cn]
		if !watching {
			continue
		}
		fmt.Fprintf(&b, "%#x\n", cn.sessionID())
		for _, path := range slices.Sorted(maps.Keys(paths)) {
			fmt.Fprintf(&b, "\t%s\n", path)
		}
	}
	return b.String() + "\n"
}

func (c *cluster) wordWchp(ep *endpoint) string {
	var b strings.Builder
	for _, path := range slices.Sorted(maps.Keys(ep.data.byPath)) {
		fmt.Fprintf(&b, "%s\n", path)
		for _, cn := range ep.clients() {
			if _, watches := ep.data.byPath[path][cn]; watches {
				fmt.Fprintf(&b, "\t%#x\n", cn.sessionID())
			}
		}
	}
	return b.String() + "\n"
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
		// A connection expires with its session, or ten seconds after it arrived; both are checked
		// every ten seconds.
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

// expirySets lists due by time.
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
		"maxClientCnxns=%d\nminSessionTimeout=%d\nmaxSessionTimeout=%d\nclientPortListenBacklog=-1\nserverId=%d\n",
		ep.addr[strings.LastIndexByte(ep.addr, ':')+1:], c.cfg.tick.Milliseconds(),
		c.cfg.maxConns, c.cfg.minTimeout.Milliseconds(), c.cfg.maxTimeout.Milliseconds(), id)
	if ep.replica == nil {
		return s
	}
	s += fmt.Sprintf("initLimit=%d\nsyncLimit=%d\nelectionAlg=3\nelectionPort=3888\nquorumPort=2888\npeerType=0\nmembership: \n",
		c.cfg.syncLimit, c.cfg.syncLimit)
	return s + c.members
}

// membership returns the configuration of an ensemble in the format of QuorumMaj.toString, with the
// addresses for clients, which Curator and zkCli connect to.
func (c *cluster) membership() string {
	var b strings.Builder
	for _, m := range c.endpoints {
		fmt.Fprintf(&b, "server.%d=%s:2888:3888:participant;%s\n", m.id, m.addr[:strings.LastIndexByte(m.addr, ':')], m.addr)
	}
	return b.String() + "version=0"
}
