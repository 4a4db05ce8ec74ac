//go:build linux

package cutup_test

// Child processes that communicate in lines.

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// process is a child that ends with the test, or when its standard input does.
type process struct {
	*os.Process
	stdin  io.Writer
	lines  chan string  // what it prints; closed at its end
	stderr bytes.Buffer // to be read after its end
}

func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{lines: make(chan string, 1000)}
	cmd.Stderr = &p.stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	started, ended := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // its parent-death signal is sent when this thread ends
		defer close(ended)
		defer close(p.lines)
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			p.lines <- lines.Text()
		}
		cmd.Wait()
	}()
	require.NoError(t, <-started)
	p.Process, p.stdin = cmd.Process, stdin
	t.Cleanup(func() {
		stdin.Close()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			p.Kill()
			<-ended
		}
	})
	return p
}

// await returns the next line, which must begin with the word, without it.
func (p *process) await(t *testing.T, word string) string {
	t.Helper()
	select {
	case line, ok := <-p.lines:
		if !ok {
			require.FailNow(t, "the child ended", "%s", p.stderr.String())
		}
		rest, is := strings.CutPrefix(line, word)
		require.True(t, is, "the child said %q, want %s", line, word)
		return strings.TrimSpace(rest)
	case <-time.After(late):
		require.FailNow(t, "the child does not say "+word)
		panic("unreachable")
	}
}
