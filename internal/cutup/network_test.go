//go:build linux

package cutup_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zklock/zklock/internal/cutup"
)

// envHelper turns this test binary into a process that a test kills.
const envHelper = "ZKLOCK_CUTUP_HELPER"

func TestMain(m *testing.M) {
	switch os.Getenv(envHelper) {
	case "network":
		if _, err := cutup.New("a"); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("made")
		select {}
	case "holder":
		if err := pausedHolder(os.Args[1], os.Args[2]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// asked skips a test that takes minutes unless ZKLOCK_CHAOS=1 requests it.
func asked(t *testing.T) {
	t.Helper()
	if os.Getenv("ZKLOCK_CHAOS") != "1" {
		t.Skip("the tests on a real ensemble that is cut up run with ZKLOCK_CHAOS=1; see make nightly PART=chaos")
	}
}

// lacking skips a test because of a missing requirement, or fails it if ZKLOCK_REQUIRE=1.
func lacking(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("ZKLOCK_REQUIRE") == "1" {
		t.Fatalf("ZKLOCK_REQUIRE=1, and %s", what)
	}
	t.Skipf("not covered: %s", what)
}

// network creates a network that is removed with the test.
func network(t *testing.T, hosts ...string) *cutup.Network {
	t.Helper()
	asked(t)
	if what := cutup.Missing(); what != "" {
		lacking(t, what)
	}
	n, err := cutup.New(hosts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	return n
}

// echo serves lines on the host until the test ends, and returns its address.
func echo(t *testing.T, h *cutup.Host) string {
	t.Helper()
	l, err := h.Listen(7)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				io.Copy(conn, conn)
			}()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

// answers reports whether a line is echoed within d.
func answers(t *testing.T, conn net.Conn, d time.Duration) bool {
	t.Helper()
	require.NoError(t, conn.SetDeadline(time.Now().Add(d)))
	_, err := io.WriteString(conn, "hello\n")
	require.NoError(t, err)
	line, err := bufio.NewReader(conn).ReadString('\n')
	return err == nil && line == "hello\n"
}

func TestNetwork_BlocksEachDirectionByItself(t *testing.T) {
	n := network(t, "a", "b", "c")
	a, b, c := n.Host("a"), n.Host("b"), n.Host("c")
	addr := echo(t, b)
	// A blocked packet never arrives; any other may take its time on a busy machine.
	dial := func(h *cutup.Host) (net.Conn, error) { return h.Dial("tcp", addr, 10*time.Second) }
	for _, cut := range []struct {
		name string
		do   func() error
	}{
		{"what a sends", func() error { return n.Block(a, b) }},
		{"what a is sent", func() error { return n.Block(b, a) }},
		{"both ways", func() error { return n.Cut(a, b) }},
	} {
		conn, err := dial(a)
		require.NoError(t, err)
		require.True(t, answers(t, conn, 5*time.Second))
		require.NoError(t, cut.do())
		require.False(t, answers(t, conn, 100*time.Millisecond), "%s is blocked", cut.name)
		_, err = a.Dial("tcp", addr, 300*time.Millisecond)
		require.ErrorContains(t, err, "timeout", cut.name)
		other, err := dial(c)
		require.NoError(t, err, "c is not cut off")
		require.NoError(t, other.Close())

		require.NoError(t, n.Heal())
		require.NoError(t, conn.SetDeadline(time.Now().Add(5*time.Second)))
		line, err := bufio.NewReader(conn).ReadString('\n')
		require.NoError(t, err, "the connection outlives the cut")
		require.Equal(t, "hello\n", line)
		require.NoError(t, conn.Close())
	}
	require.NoError(t, n.Cut(a, b, c))
	require.NoError(t, n.Mend(a, b))
	conn, err := dial(a)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
}

// A process that is killed cannot clean up; the next one does it.
func TestNetwork_RemovesWhatAKilledProcessLeft(t *testing.T) {
	network(t) // or there is nothing to see here
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envHelper+"=network")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "made\n", line)
	left := func() (names []string) {
		entries, err := os.ReadDir("/run/netns")
		require.NoError(t, err)
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), fmt.Sprintf("zkcut-%d-", cmd.Process.Pid)) {
				names = append(names, e.Name())
			}
		}
		return names
	}
	require.Len(t, left(), 2, "the host and the switch")
	network(t)
	require.Len(t, left(), 2, "its process runs")
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	network(t)
	require.Empty(t, left())
}
