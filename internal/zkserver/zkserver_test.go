package zkserver_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zklock/zklock/internal/zkserver"
)

// envHelper turns this test binary into the process that TestReal_Child_DiesWithThisProcess kills.
const envHelper = "ZKSERVER_TEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(envHelper) == "1" {
		helper()
	}
	goleak.VerifyTestMain(m)
}

// helper starts a server, prints its address, and waits to be killed.
func helper() {
	s, err := zkserver.Start(zkserver.Config{})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	fmt.Println(s.Pid(), s.Dir())
	select {}
}

// within fails the test if the condition does not become true in time.
func within(t *testing.T, d time.Duration, condition func() bool, what string, args ...any) {
	t.Helper()
	for deadline := time.Now().Add(d); !condition(); {
		if time.Now().After(deadline) {
			require.FailNow(t, "not within "+d.String()+": "+fmt.Sprintf(what, args...))
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// client connects, and returns when there is a session.
func client(t *testing.T, connect string, timeout time.Duration) *zk.Conn {
	t.Helper()
	conn, _, err := zk.Connect(strings.Split(connect, ","), timeout, zk.WithLogger(quiet{}), zk.WithDialer(zkserver.Impatient(zkserver.LastZxids(net.DialTimeout))))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	within(t, 20*time.Second, func() bool { return conn.State() == zk.StateHasSession }, "a session at %s", connect)
	return conn
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

func TestReal_StopAndStart_KeepsAddressAndData(t *testing.T) {
	s := zkserver.Single(t, zkserver.Own())
	mode, err := s.Mode()
	require.NoError(t, err)
	require.Equal(t, "standalone", mode)
	addr, pid := s.Addr(), s.Pid()

	for _, down := range []struct {
		name string
		do   func() error
	}{{"stop", s.Stop}, {"kill", s.Kill}} {
		conn := client(t, s.ConnectString(), 5*time.Second)
		_, err := conn.Create("/"+down.name, []byte("kept"), 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		conn.Close()

		require.NoError(t, down.do())
		require.False(t, s.Running())
		require.Zero(t, s.Pid())
		_, err = s.Mode()
		require.Error(t, err, "a server that is down answers nothing")
		require.NoError(t, down.do(), "%s again does nothing", down.name)

		require.NoError(t, s.Start())
		require.Equal(t, addr, s.Addr())
		require.NotEqual(t, pid, s.Pid())
		require.Error(t, s.Start(), "it runs already")
		data, _, err := client(t, s.ConnectString(), 5*time.Second).Get("/" + down.name)
		require.NoError(t, err)
		require.Equal(t, "kept", string(data))
	}
}

// Tests that restart no server run in parallel. A test that restarts one needs its old port, which
// the server of another test could take.
func TestReal_PausedAnswersNothing_ResumedServes(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("no SIGSTOP on Windows")
	}
	s := zkserver.Single(t, zkserver.Own())
	conn := client(t, s.ConnectString(), 10*time.Second)

	require.NoError(t, s.Pause())
	require.True(t, s.Running())
	_, err := s.Mode()
	require.ErrorContains(t, err, "timeout")
	require.NoError(t, s.Resume())
	require.NoError(t, s.Ready())
	_, _, err = conn.Children("/")
	require.NoError(t, err)

	// A paused process handles SIGTERM only when it resumes, so Stop resumes it.
	require.NoError(t, s.Pause())
	require.NoError(t, s.Stop())
	require.ErrorContains(t, s.Pause(), "does not run")
	require.ErrorContains(t, s.Resume(), "does not run")
}

func TestReal_Close_LeavesNothing(t *testing.T) {
	s := zkserver.Single(t, zkserver.Own())
	require.DirExists(t, s.Dir())

	require.NoError(t, s.Close())
	require.False(t, s.Running())
	require.NoDirExists(t, s.Dir())
	require.ErrorContains(t, s.Start(), "closed")
	require.NoError(t, s.Close())
}

func TestReal_DataDir_OutlivesTheServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := zkserver.Single(t, zkserver.DataDir(dir))
	_, err := client(t, first.ConnectString(), 5*time.Second).Create("/a", nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	require.NoError(t, first.Close())
	require.FileExists(t, filepath.Join(dir, "server.log"))

	second := zkserver.Single(t, zkserver.DataDir(dir))
	exists, _, err := client(t, second.ConnectString(), 5*time.Second).Exists("/a")
	require.NoError(t, err)
	require.True(t, exists)
}

func TestReal_OptionsReachTheServer(t *testing.T) {
	t.Parallel()
	s := zkserver.Single(t,
		zkserver.TickTime(250*time.Millisecond),
		zkserver.SessionTimeouts(1500*time.Millisecond, 2500*time.Millisecond),
		zkserver.InitLimit(11), zkserver.SyncLimit(7),
		zkserver.Line("maxClientCnxns=77"),
		zkserver.Property("java.io.tmpdir", "/tmp/of-the-test"))

	conf, err := s.FourLetter("conf")
	require.NoError(t, err)
	require.Contains(t, conf, "tickTime=250\n")
	require.Contains(t, conf, "minSessionTimeout=1500\n")
	require.Contains(t, conf, "maxSessionTimeout=2500\n")
	require.Contains(t, conf, "maxClientCnxns=77\n")
	envi, err := s.FourLetter("envi")
	require.NoError(t, err)
	require.Contains(t, envi, "java.io.tmpdir=/tmp/of-the-test\n")
	require.Contains(t, s.Log(), "minSessionTimeout set to 1500", "the log is kept")
}

func TestReal_Counters(t *testing.T) {
	t.Parallel()
	s := zkserver.Single(t, zkserver.Own())
	before, err := s.WatchCount()
	require.NoError(t, err)
	require.Zero(t, before)

	conn := client(t, s.ConnectString(), 10*time.Second)
	_, err = conn.Create("/e", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	_, _, _, err = conn.GetW("/e")
	require.NoError(t, err)
	_, _, _, err = conn.ChildrenW("/")
	require.NoError(t, err)

	watches, err := s.WatchCount()
	require.NoError(t, err)
	require.Equal(t, 2, watches, "a data watch and a child watch")
	ephemerals, err := s.Ephemerals()
	require.NoError(t, err)
	require.Equal(t, 1, ephemerals)
}

func TestReal_ExpireSession_EndsItAndItsNodes(t *testing.T) {
	s := zkserver.Single(t, zkserver.Own())
	events := make(chan zk.State, 64)
	// The client's event channel drops events that are not read in time; the callback sees all.
	conn, _, err := zk.Connect([]string{s.Addr()}, 30*time.Second, zk.WithLogger(quiet{}),
		zk.WithEventCallback(func(e zk.Event) { events <- e.State }))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	_, err = conn.Create("/e", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	other := client(t, s.ConnectString(), 5*time.Second)
	expired := conn.SessionID()

	start := time.Now()
	require.NoError(t, zkserver.ExpireSession(s.Addr(), expired))
	require.Less(t, time.Since(start), 5*time.Second, "the session timeout is 30 s")

	exists, _, err := other.Exists("/e")
	require.NoError(t, err)
	require.False(t, exists, "the session's node went with it")
	within(t, 20*time.Second, func() bool {
		select {
		case state := <-events:
			return state == zk.StateExpired
		default:
			return false
		}
	}, "the client is told that its session expired")
	require.ErrorIs(t, zkserver.ExpireSession(s.Addr(), expired), zkserver.ErrNoSession)
}

func TestReal_Ensemble_LeaderKilled_AnotherLeads(t *testing.T) {
	ens := zkserver.Ensemble(t, 3, zkserver.TickTime(200*time.Millisecond))
	require.Len(t, ens.Servers(), 3)
	old, err := ens.Leader()
	require.NoError(t, err)
	followers, err := ens.Followers()
	require.NoError(t, err)
	require.Len(t, followers, 2)
	conn := client(t, ens.ConnectString(), 10*time.Second)
	_, err = conn.Create("/a", nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)

	require.NoError(t, old.Kill())
	leader, err := ens.Leader()
	require.NoError(t, err)
	require.NotEqual(t, old.ID(), leader.ID())
	require.NoError(t, ens.Ready(), "a member that is down is not waited for")

	require.NoError(t, old.Start())
	mode, err := old.Mode()
	require.NoError(t, err)
	require.Equal(t, "follower", mode)
	exists, _, err := client(t, old.ConnectString(), 10*time.Second).Exists("/a")
	require.NoError(t, err)
	require.True(t, exists)
}

func TestReal_Ensemble_LeaderPaused_AnotherLeads_ResumedFollows(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("no SIGSTOP on Windows")
	}
	ens := zkserver.Ensemble(t, 3, zkserver.TickTime(200*time.Millisecond))
	old, err := ens.Leader()
	require.NoError(t, err)

	require.NoError(t, old.Pause())
	require.NoError(t, ens.Ready(), "a paused member is not waited for")
	leader, err := ens.Leader()
	require.NoError(t, err)
	require.NotEqual(t, old.ID(), leader.ID())

	require.NoError(t, old.Resume())
	within(t, 20*time.Second, func() bool {
		mode, _ := old.Mode()
		return mode == "follower"
	}, "the deposed leader follows")
}

func TestReal_Ensemble_WatchCountIsTheSum(t *testing.T) {
	t.Parallel()
	ens := zkserver.Ensemble(t, 3, zkserver.TickTime(200*time.Millisecond))
	for _, s := range ens.Servers() {
		_, _, _, err := client(t, s.ConnectString(), 10*time.Second).ChildrenW("/")
		require.NoError(t, err)
	}

	watches, err := ens.WatchCount()
	require.NoError(t, err)
	require.Equal(t, 3, watches)
}

func TestReal_ServerThatCannotStart_ShowsItsLog(t *testing.T) {
	zkserver.Single(t, zkserver.Own()) // skips where none is installed

	_, err := zkserver.Start(zkserver.NewConfig(zkserver.Line("tickTime=often")))
	require.ErrorContains(t, err, "the process ended before it served")
	require.ErrorContains(t, err, `For input string: "often"`, "ZooKeeper's own words")
}

// fakeTB records the helpers' calls.
type fakeTB struct {
	failed   bool
	ended    string
	logs     []string
	cleanups []func()
}

func (f *fakeTB) Helper()                      {}
func (f *fakeTB) Cleanup(fn func())            { f.cleanups = append(f.cleanups, fn) }
func (f *fakeTB) Failed() bool                 { return f.failed }
func (f *fakeTB) Logf(format string, a ...any) { f.logs = append(f.logs, fmt.Sprintf(format, a...)) }
func (f *fakeTB) Skipf(format string, a ...any) {
	f.ended = "skip: " + fmt.Sprintf(format, a...)
}
func (f *fakeTB) Fatalf(format string, a ...any) {
	f.ended = "fatal: " + fmt.Sprintf(format, a...)
}

func TestNothingInstalled_SkipsOrFails(t *testing.T) {
	t.Setenv("ZOOKEEPER_HOME", t.TempDir())
	t.Setenv(zkserver.EnvServers, "")

	for _, tt := range []struct{ real, require, want string }{
		{"", "", "skip: zkserver: no ZooKeeper is installed: "},
		{"", "1", "fatal: zkserver: no ZooKeeper is installed: "},
		{"0", "1", "skip: zkserver: starts a ZooKeeper, and "},
	} {
		t.Setenv(zkserver.EnvReal, tt.real)
		t.Setenv(zkserver.EnvRequire, tt.require)
		tb := &fakeTB{}
		require.Nil(t, zkserver.Single(tb))
		require.Contains(t, tb.ended, tt.want)
		tb = &fakeTB{}
		require.Nil(t, zkserver.Ensemble(tb, 3))
		require.Contains(t, tb.ended, tt.want)
	}
	_, err := zkserver.Start(zkserver.Config{})
	require.ErrorIs(t, err, zkserver.ErrNotInstalled)
}

func TestReal_NamedServers_AreUsedAsTheyAre(t *testing.T) {
	own := zkserver.Single(t, zkserver.Own())
	t.Setenv(zkserver.EnvServers, own.Addr()+",127.0.0.1:1")

	s := zkserver.Single(t)
	require.Equal(t, own.Addr(), s.Addr())
	require.Equal(t, own.Addr()+",127.0.0.1:1", s.ConnectString())
	mode, err := s.Mode()
	require.NoError(t, err)
	require.Equal(t, "standalone", mode)
	require.ErrorContains(t, s.Kill(), "not our process")
	require.ErrorContains(t, s.Start(), "not our process")
	require.NoError(t, s.Close())
	require.True(t, own.Running())

	require.NotEqual(t, own.Addr(), zkserver.Single(t, zkserver.Own()).Addr(), "an option asks for one's own")
}

func TestReal_FailedTest_ShowsTheLog(t *testing.T) {
	zkserver.Single(t, zkserver.Own()) // skips where none is installed

	for _, failed := range []bool{true, false} {
		tb := &fakeTB{failed: failed}
		s := zkserver.Single(tb, zkserver.Own())
		require.NotNil(t, s, tb.ended)
		for _, cleanup := range tb.cleanups {
			cleanup()
		}
		require.False(t, s.Running())
		require.Equal(t, failed, strings.Contains(strings.Join(tb.logs, "\n"), "minSessionTimeout set to"))
	}
}

func TestReal_Child_DiesWithThisProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has parent-death signals")
	}
	zkserver.Single(t, zkserver.Own()) // skips where none is installed
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), envHelper+"=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var pid int
	var dir string
	line, readErr := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, cmd.Process.Kill())
	_, _ = io.Copy(io.Discard, out)
	require.Error(t, cmd.Wait(), "it was killed")
	require.NoError(t, readErr)
	_, err = fmt.Sscan(line, &pid, &dir)
	require.NoError(t, err, "the helper said %q", line)
	t.Cleanup(func() { os.RemoveAll(dir) })

	within(t, 10*time.Second, func() bool {
		// The process has ended, or is a zombie, which has no command line any more.
		cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return err != nil || len(cmdline) == 0
	}, "the end of server process %d", pid)
}
