package conformance

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/rawzk"
	"github.com/zklock/zklock/internal/wire"
	"github.com/zklock/zklock/internal/zkserver"
	"github.com/zklock/zklock/zktest"
)

var (
	opsFlag    = flag.Int("ops", intFromEnv("ZKLOCK_CONFORMANCE_OPS", 3000), "operations of each differential run")
	recordFlag = flag.Bool("record", false, "make the transcript again")
	seedFlag   = flag.Uint64("seed", uint64(intFromEnv("ZKLOCK_CONFORMANCE_SEED", 0)), "seed of the fresh run; 0 takes the clock's")
)

func intFromEnv(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

const (
	fixedSeed = 20260101
	// transcriptOps is how much of the fixed seed's run is kept in the repository.
	transcriptOps = 3000
)

// versions are the versions that our server can imitate, oldest first.
var versions = []string{"3.8.0", "3.9.3", "3.9.6"}

func transcript(version string) string { return "testdata/transcript-" + version + ".json.gz" }

// sessions is the number of clients; three make every relation between them possible.
const sessions = 3

func TestDifferential_FixedSeed(t *testing.T) { differential(t, fixedSeed, *opsFlag) }

// A change must not be blocked by a bug that a new seed finds in other code, so this test runs at
// night.
func TestDifferential_FreshSeed(t *testing.T) {
	suites(t)
	differential(t, freshSeed(), *opsFlag)
}

// The same with an ensemble of ours, as TestDifferential_Transcript_Ensemble has it.
func TestDifferential_FreshSeed_Ensemble(t *testing.T) {
	suites(t)
	real, version := startModelled(t)
	onEnsemble(t, freshSeed(), version, real, nil).operate(*opsFlag)
}

func freshSeed() uint64 {
	if *seedFlag != 0 {
		return *seedFlag
	}
	return uint64(time.Now().UnixNano())
}

// differential performs the same random operations on a fresh real server and on a fresh one of
// ours.
func differential(t *testing.T, seed uint64, ops int) {
	real, version := startModelled(t)
	newRun(t, seed, version, real, single(t, version), nil).operate(ops)
}

// startModelled runs a real server and returns the version of ours that imitates it: the last one
// that is not newer. If the real server is older than all of them, the test is skipped.
func startModelled(t *testing.T) (*side, string) {
	t.Helper()
	addr := startReal(t)
	full, err := zkserver.Version(addr)
	require.NoError(t, err)
	model := ""
	for _, version := range versions {
		if !zkserver.Older(full, version) {
			model = version
		}
	}
	if model == "" {
		t.Skipf("not compared: zktest's server is a ZooKeeper %v, and this is %s", versions, full)
	}
	t.Logf("ZooKeeper %s beside zktest's %s", full, model)
	return newSide(t, "real", addr), model
}

// TestDifferential_Transcript compares our server with transcripts of real ones, so that the
// comparison also runs without Java. To record the installed server's again, after a change of the
// generator, run
//
//	go test ./internal/conformance -run Transcript -args -record
//
// and prefix it with ZOOKEEPER_HOME=$(scripts/zookeeper-home trixie) for another version's.
func TestDifferential_Transcript(t *testing.T) {
	if *recordFlag {
		real, version := startModelled(t)
		d := newRun(t, fixedSeed, version, real, single(t, version), nil)
		d.operate(transcriptOps)
		saveTranscript(t, transcript(version), d.said)
		return
	}
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			newRun(t, fixedSeed, version, nil, single(t, version), loadTranscript(t, transcript(version))).operate(transcriptOps)
		})
	}
}

// TestDifferential_Transcript_Ensemble compares an ensemble, each session on a member of its own,
// with the transcript of one real server: without faults, clients cannot distinguish them. There
// are two exceptions. checkWatches is not compared with 3.8.0, which looks for any client's watch,
// and each member has its own. /zookeeper/config, which has the members of an ensemble, is emptied
// first; TestEnsemble compares it.
func TestDifferential_Transcript_Ensemble(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			onEnsemble(t, fixedSeed, version, nil, loadTranscript(t, transcript(version))).operate(transcriptOps)
		})
	}
}

func onEnsemble(t *testing.T, seed uint64, version string, real *side, script []saidThat) *run {
	d := newRun(t, seed, version, real, ensemble(t, version), script)
	d.wordless = true // each member has the watches of its own clients only
	if version == "3.8.0" {
		d.leaveOut = wire.OpCheckWatches
	}
	return d
}

var superDigest = zktest.Digest("root:secret")

// run is one comparison in progress.
type run struct {
	t          *testing.T
	ours       ours
	real       *side      // nil if there is only a transcript
	fake       *side      // ours
	said       []saidThat // the real one's replies so far, or
	script     []saidThat // its recorded replies from here on
	leaveOut   wire.Op    // is done and not compared
	leftOut    bool       // the present one is
	wordless   bool       // the four-letter words are not compared
	gen        generator
	n          int
	generation int
}

// saidThat is one line of a transcript.
type saidThat struct {
	Asked string
	Said  string
}

// ours is one of our servers, single or an ensemble.
type ours interface {
	Zxid() int64
	History() []zktest.Applied
}

type subject struct {
	ours
	side *side
}

var options = []zktest.Option{
	zktest.WithConfig("4lw.commands.whitelist=*", "extendedTypesEnabled=true", "znode.container.checkIntervalMs=86400000",
		"DigestAuthenticationProvider.superDigest="+superDigest),
}

func single(t *testing.T, version string) subject {
	srv := zktest.Start(t, append(options, zktest.WithVersion(version))...)
	return subject{srv, newSide(t, "zktest", srv.Addr())}
}

func ensemble(t *testing.T, version string) subject {
	e := zktest.StartEnsemble(t, sessions, append(options, zktest.WithVersion(version))...)
	// A single server's configuration is empty and has version 0.
	require.NoError(t, e.SetData("/zookeeper/config", []byte{}))
	s := newSide(t, "zktest's ensemble", e.Addrs()...)
	s.base = e.Zxid()
	return subject{e, s}
}

func newRun(t *testing.T, seed uint64, version string, real *side, ours subject, script []saidThat) *run {
	d := &run{t: t, ours: ours, real: real, script: script, fake: ours.side}
	zxid := func() int64 { return ours.Zxid() - ours.side.base }
	d.gen = generator{Rand: rand.New(rand.NewPCG(seed, 0)), is39: !zkserver.Older(version, "3.9"), zxid: zxid, recent: new([]string), last: new(written)}
	t.Logf("seed %d", seed)
	return d
}

// operate performs the operations. The first difference in a reply or an event ends the test.
func (d *run) operate(ops int) {
	d.t.Helper()
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
		code := d.request(fmt.Sprintf("session %d: %v", i, req), i, req)
		if codes[req.op] == nil {
			codes[req.op] = make(map[wire.Code]int)
		}
		codes[req.op][code]++
		if req.closes {
			d.reattach(i)
		}
		if d.real != nil && !d.wordless && (d.n%1000 == 0 || d.n == ops) {
			d.sameWords()
		}
	}
	require.Empty(d.t, d.script, "the transcript goes on")
	d.t.Logf("0 differences in %d operations; zxid %#x, %d changes; operations by kind and error code:%s",
		ops, d.gen.zxid(), len(d.ours.History()), table(codes))
}

// table lists the codes, to show that the run met every one, not only many.
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

// same performs an action on both sides, compares the results, and returns them.
func (d *run) same(what string, act func(s *side) string) string {
	d.t.Helper()
	what = fmt.Sprintf("operation %d, %s", d.n, what)
	fake := act(d.fake)
	var real string
	switch {
	case d.real != nil:
		real = act(d.real)
		d.said = append(d.said, saidThat{Asked: what, Said: real})
	default:
		require.NotEmpty(d.t, d.script, "the transcript ends at %s", what)
		require.Equal(d.t, d.script[0].Asked, what, "the transcript is of other operations: make it again")
		real, d.script = d.script[0].Said, d.script[1:]
	}
	if real != fake && !d.leftOut {
		require.FailNow(d.t, "the servers differ", "%s\nreal:   %s\nzktest: %s", what, real, fake)
	}
	return fake
}

// each performs an action on both sides without comparing the results.
func (d *run) each(do func(s *side)) {
	do(d.fake)
	if d.real != nil {
		do(d.real)
	}
}

// request makes a request on both sides and returns its error code.
func (d *run) request(what string, i int, req request) wire.Code {
	d.t.Helper()
	d.leftOut = d.leaveOut != 0 && req.op == d.leaveOut
	said := d.same(what, func(s *side) string { return s.call(i, req).String() })
	d.leftOut = false
	var xid, zxid, code int64
	var path string
	if n, _ := fmt.Sscanf(said, "xid %d zxid %v err %d: %q", &xid, &zxid, &code, &path); n == 4 {
		switch req.op {
		case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL:
			*d.gen.recent = append(*d.gen.recent, path)
			*d.gen.last = written{path, zxid}
		}
	}
	if set, ok := req.body.(wire.SetDataRequest); ok && code == 0 {
		*d.gen.last = written{set.Path, zxid}
	}
	return wire.Code(code)
}

func (d *run) connect(what string, i int, req wire.ConnectRequest) {
	d.t.Helper()
	d.generation++
	d.same(fmt.Sprintf("%s %d", what, i), func(s *side) string { return s.connect(i, req, d.generation) })
}

// reattach attaches to a session again after its connection has ended, and opens a new session if
// it has ended, too.
func (d *run) reattach(i int) {
	d.t.Helper()
	d.generation++
	d.same(fmt.Sprintf("reattach session %d", i), func(s *side) string { return s.connect(i, s.keys[i], d.generation) })
	if d.fake.conns[i].Session.SessionID == 0 {
		d.connect("new session", i, wire.ConnectRequest{Timeout: 30_000})
	}
}

// disturb disturbs a connection or a session.
func (d *run) disturb(i int) {
	d.t.Helper()
	switch d.gen.IntN(6) {
	case 0: // the connection is lost, the session continues
		d.reattach(i)
	case 1: // the session is closed; a new one takes its place
		d.request(fmt.Sprintf("close session %d", i), i, request{op: wire.OpClose, closes: true, unordered: true})
		d.reattach(i) // reports that it has ended
	case 2: // a wrong password: the old connection is still closed
		old := make(map[*side]*rawzk.Conn)
		d.each(func(s *side) { old[s], s.conns[i] = s.conns[i], nil })
		d.generation++
		d.same(fmt.Sprintf("wrong password for session %d", i), func(s *side) string {
			wrong := s.keys[i]
			wrong.Password = make([]byte, 16)
			return s.connect(i, wrong, d.generation)
		})
		d.same(fmt.Sprintf("the old connection of session %d", i), func(s *side) string { return ended(old[s]) })
		d.reattach(i)
	case 3: // a client that has seen the future
		d.connect("from the future", i, wire.ConnectRequest{Timeout: 30_000, LastZxidSeen: d.gen.zxid() + 1000})
		d.reattach(i)
	case 4: // a request with an odd timeout and the readOnly byte
		timeout := pick(d.gen, int32(1), 10_000, 30_000, 1_000_000)
		d.each(func(s *side) { s.keys[i].Timeout, s.keys[i].HasReadOnly = timeout, true })
		d.reattach(i)
		d.each(func(s *side) { s.keys[i].Timeout, s.keys[i].HasReadOnly = 30_000, false })
		d.reattach(i)
	case 5: // a frame no server reads
		d.same(fmt.Sprintf("too long a frame from session %d", i), func(s *side) string {
			if err := s.conns[i].Write([]byte{0x7f, 0xff, 0xff, 0xff}); err != nil {
				return err.Error()
			}
			return ended(s.conns[i])
		})
		d.reattach(i)
	}
}

// ended reads the rest of a connection up to its end.
func ended(c *rawzk.Conn) string {
	defer c.Close()
	said := "nothing"
	for {
		r, err := c.Receive()
		if err != nil {
			var ne net.Error
			if errors.As(err, &ne) && ne.Timeout() {
				return said + ", still open"
			}
			return said + ", closed"
		}
		said = fmt.Sprintf("%v", r.Header)
	}
}

func saveTranscript(t *testing.T, path string, said []saidThat) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	file, err := os.Create(path)
	require.NoError(t, err)
	defer file.Close()
	packed, err := gzip.NewWriterLevel(file, gzip.BestCompression)
	require.NoError(t, err)
	require.NoError(t, json.NewEncoder(packed).Encode(said))
	require.NoError(t, packed.Close())
}

func loadTranscript(t *testing.T, path string) (said []saidThat) {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	packed, err := gzip.NewReader(file)
	require.NoError(t, err)
	require.NoError(t, json.NewDecoder(packed).Decode(&said))
	return said
}
