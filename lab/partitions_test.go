package main

// kazoo's SetPartitioner as a rival of package shards: 256 partitions over 8 processes. TestReal of
// that package measures the same for shards.

import (
	"bufio"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// partitions are kazoo's members, and what they have reported.
type partitions struct {
	t       *testing.T
	command []string
	members map[string]*exec.Cmd

	mu    sync.Mutex
	all   []partition
	gaps  []time.Duration
	moves int
}

type partition struct {
	owner, last string    // owner is "" if there is none
	since       time.Time // the last change of the owner
}

func (ps *partitions) start(name string) {
	cmd := exec.CommandContext(ps.t.Context(), ps.command[0], append(ps.command[1:], name, fmt.Sprint(len(ps.all)))...)
	out, err := cmd.StdoutPipe()
	require.NoError(ps.t, err)
	require.NoError(ps.t, cmd.Start())
	ps.members[name] = cmd
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			what, i, at := "", 0, int64(0)
			if n, _ := fmt.Sscan(lines.Text(), &what, &i, &at); n == 3 {
				ps.note(name, what, i, time.Unix(0, at))
			}
		}
	}()
}

func (ps *partitions) note(name, what string, i int, at time.Time) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	switch p := &ps.all[i]; {
	case what == "start":
		if p.last != "" {
			ps.gaps = append(ps.gaps, at.Sub(p.since))
		}
		if p.last != name {
			ps.moves++
		}
		*p = partition{name, name, at}
	case p.owner == name:
		p.owner, p.since = "", at
	}
}

func (ps *partitions) end(name string, sig syscall.Signal) {
	require.NoError(ps.t, ps.members[name].Process.Signal(sig))
	delete(ps.members, name)
	for i := range ps.all {
		if sig == syscall.SIGKILL {
			ps.note(name, "end", i, time.Now())
		}
	}
}

// even waits until every partition has an owner and every member owns some, and returns how many
// partitions had no owner in between.
func (ps *partitions) even(what string) (stopped int) {
	ps.t.Helper()
	require.Eventually(ps.t, func() bool {
		ps.mu.Lock()
		defer ps.mu.Unlock()
		owners := map[string]bool{}
		for _, p := range ps.all {
			owners[p.owner] = true
		}
		return !owners[""] && len(owners) == len(ps.members)
	}, 90*time.Second, 10*time.Millisecond, what)
	ps.mu.Lock()
	defer ps.mu.Unlock()
	slices.Sort(ps.gaps)
	if stopped = len(ps.gaps); stopped > 0 {
		ps.t.Logf("%s: %d moves; %d without an owner, for %v, %v at most", what, ps.moves, stopped, ps.gaps[stopped/2], ps.gaps[stopped-1])
	}
	ps.gaps, ps.moves = nil, 0
	return stopped
}

// Every change stops the work on all partitions. The members wait for a second after a change, and
// not for 30 s, the default.
func TestKazooSetPartitioner_AChangeStopsEveryPartition(t *testing.T) {
	python, err := kazooClient(t.Context(), t.TempDir())
	installed(t, err)
	script, err := unpack(t.TempDir(), "partitions.py")
	require.NoError(t, err)
	servers := serve(t, zooKeeper, Plan{Size: 1, TTL: 6 * time.Second}).Addrs()
	ps := &partitions{t: t, command: []string{python[0], script, servers[0]}, members: map[string]*exec.Cmd{}, all: make([]partition, 256)}
	for i := range 8 {
		ps.start(fmt.Sprint("m", i))
	}
	ps.even("start")
	ps.start("new")
	require.Equal(t, 256, ps.even("a member joins"))
	ps.end("new", syscall.SIGTERM)
	require.Equal(t, 256, ps.even("it leaves"))
	ps.end("m3", syscall.SIGKILL)
	require.Equal(t, 256, ps.even("a member is killed"))
}
