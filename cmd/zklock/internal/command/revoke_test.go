//go:build linux || darwin

package command

// Asking for a lock: revoke, and a run that gives way. The holder keeps the lock until its work has
// ended.

import (
	"bytes"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/zkserver"
	"github.com/zklock/zklock/zktest"
)

// untilTerm is a COMMAND that says that it runs, and on SIGTERM does $1 and ends with $0. sleep
// runs beside the trap, not before it.
const untilTerm = `trap 'eval "$1"; exit "$0"' TERM; echo "runs $ZKLOCK_NODE"; while :; do sleep 0.02; done`

func revoke(t *testing.T, srv *zkserver.Server, args ...string) *proc {
	t.Helper()
	return start(t, nil, append([]string{"revoke", "--servers", srv.ConnectString()}, args...)...)
}

func TestRevoke_RevocableRun_GivesWay_WithTheCodeOfCommand(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		command []string
		code    int
	}{
		"it ends by SIGTERM":     {[]string{"sh", "-c", `echo runs; exec sleep 600`}, 143},
		"it answers with a code": {[]string{"sh", "-c", untilTerm, "7", "echo ending"}, 7},
		"it is done":             {[]string{"sh", "-c", untilTerm, "0", ":"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			srv, path := server(t), lockPath(t)
			s := session(t, srv)
			p := run(t, srv, path, append([]string{"--revocable", "--"}, tc.command...)...)
			eventually(t, "it runs", func() bool { return strings.Contains(p.stdout.String(), "runs") })
			node, pid := participants(t, s, path)[0].Node, p.cmd.Process.Pid
			r := revoke(t, srv, path)
			require.Equal(t, 0, r.wait(), r.stderr.String())
			require.Empty(t, participants(t, s, path))
			require.Equal(t, tc.code, p.wait())
			require.Regexp(t, `zklock: `+path+` \(token \d+\): another client asks for the lock: the command gets SIGTERM, and the lock is released when it has ended\n`, p.stderr.String())
			require.Regexp(t, fmt.Sprintf(`^%[1]s: asked \S+, pid %[2]d, session 0x\w+, node %[3]s\n%[1]s: no longer held, \S+ after it was asked, by \S+, pid %[2]d, .*\n$`, path, pid, node), r.stdout.String())
			require.Empty(t, r.stderr.String())
		})
	}
}

// What COMMAND does after SIGTERM is under the lock: nobody else has it before COMMAND has ended.
func TestRevoke_HoldsUntilCommandHasEnded(t *testing.T) {
	t.Parallel()
	srv, path := server(t), lockPath(t)
	stop, end := stopFile(t)
	p := run(t, srv, path, "--revocable", "--", "sh", "-c", untilTerm, "0", `echo asked; until [ -e `+stop+` ]; do sleep 0.02; done`)
	eventually(t, "it runs", func() bool { return strings.Contains(p.stdout.String(), "runs") })
	r := revoke(t, srv, "--wait", "1s", path)
	require.Equal(t, exitNotAcquired, r.wait())
	require.Contains(t, r.stderr.String(), "zklock: "+path+": still held, 1s after it was asked, by ")
	eventually(t, "it is asked", func() bool { return strings.Contains(p.stdout.String(), "asked") })
	next := run(t, srv, path, "-n", "--", "true")
	require.Equal(t, exitNotAcquired, next.wait())

	r = revoke(t, srv, path)
	eventually(t, "it asks again", func() bool { return strings.Contains(r.stdout.String(), ", which another client had asked before\n") })
	end()
	require.Equal(t, 0, r.wait())
	require.Equal(t, 0, p.wait())
	require.Equal(t, 1, strings.Count(p.stdout.String(), "asked"), "one SIGTERM for both")
}

func TestRevoke_RunThatDoesNotListen_KeepsTheLock(t *testing.T) {
	t.Parallel()
	srv, path := server(t), lockPath(t)
	stop, end := stopFile(t)
	p := runUntil(t, srv, path, stop)
	eventually(t, "it runs", func() bool { return strings.Contains(p.stdout.String(), "runs") })
	r := revoke(t, srv, "--wait", "0", path)
	require.Equal(t, 0, r.wait(), "it has asked")
	require.NotContains(t, r.stdout.String(), "no longer held")
	r = revoke(t, srv, "--wait", "500ms", path)
	require.Equal(t, exitNotAcquired, r.wait())
	require.Contains(t, r.stderr.String(), "or does not listen, as zklock run --revocable does")
	end()
	require.Equal(t, 0, p.wait())
	require.Contains(t, p.stdout.String(), "ended")

	r = revoke(t, srv, path)
	require.Equal(t, exitNoHolder, r.wait())
	require.Equal(t, "zklock: "+path+": no client was asked: no client holds it\n", r.stderr.String())
}

// Of several holders none is asked unless it is named; a hold of several permits is one holder.
func TestRevoke_SeveralHold_AsksWhoIsNamed(t *testing.T) {
	t.Parallel()
	srv, path := server(t), lockPath(t)
	semaphore := func(k string) *proc {
		p := run(t, srv, path, "--revocable", "--semaphore", "3", "--permits", k, "--", "sh", "-c", untilTerm, "0", ":")
		eventually(t, "it runs", func() bool { return strings.Contains(p.stdout.String(), "runs") })
		return p
	}
	two := semaphore("2")
	one := semaphore("1")
	r := revoke(t, srv, path)
	require.Equal(t, exitUsage, r.wait())
	require.Contains(t, r.stderr.String(), path+": it has 2 holders, and none was asked: give --holder")
	r = revoke(t, srv, "--holder", "lease-0000009999", path)
	require.Equal(t, exitNoHolder, r.wait())

	node := strings.Fields(one.stdout.String())[1]
	r = revoke(t, srv, "--holder", shortName(node), path)
	require.Equal(t, 0, r.wait(), r.stderr.String())
	require.Equal(t, 0, one.wait())
	require.Equal(t, 1, strings.Count(r.stdout.String(), "asked"+" "), r.stdout.String())
	r = revoke(t, srv, path)
	require.Equal(t, 0, r.wait(), "one is left, with two permits")
	require.Equal(t, 0, two.wait())

	one, two = semaphore("1"), semaphore("2")
	r = revoke(t, srv, "--all-holders", path)
	require.Equal(t, 0, r.wait(), r.stderr.String())
	require.Equal(t, []int{0, 0}, []int{one.wait(), two.wait()})
}

// A leader that gives way stands again, behind those who wait, and can be asked again.
func TestRevoke_Leader_CampaignsAgain(t *testing.T) {
	t.Parallel()
	srv, path := server(t), lockPath(t)
	candidate := func() *proc {
		return run(t, srv, path, "--revocable", "--elect", "--", "sh", "-c", untilTerm, "3", ":")
	}
	terms := func(p *proc) int { return strings.Count(p.stdout.String(), "runs") }
	first := candidate()
	eventually(t, "it leads", func() bool { return terms(first) == 1 })
	second := candidate()
	second.prints("waiting")
	s := session(t, srv)
	for i, p := range []*proc{first, second} {
		r := revoke(t, srv, path)
		require.Equal(t, 0, r.wait(), r.stderr.String())
		eventually(t, "the other leads", func() bool { return terms([]*proc{second, first}[i]) == 1+i })
		p.prints("gave way (token ")
		p.prints("campaigning again")
		eventually(t, "both stand", func() bool { return len(participants(t, s, path)) == 2 })
	}
	for _, p := range []*proc{first, second} {
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	}
	require.Contains(t, []int{3, 143}, first.wait())
	require.Contains(t, []int{3, 143}, second.wait())
}

func TestRevoke_OfTheLibrary_AsksARunAndIsAskedByRevoke(t *testing.T) {
	t.Parallel()
	srv, path := server(t), lockPath(t)
	s := session(t, srv)
	p := run(t, srv, path, "--revocable", "--shared", "--", "sh", "-c", untilTerm, "0", ":")
	eventually(t, "it runs", func() bool { return strings.Contains(p.stdout.String(), "runs") })
	require.NoError(t, s.Revoke(t.Context(), strings.Fields(p.stdout.String())[1]))
	require.Equal(t, 0, p.wait())

	asked := make(chan *zklock.Hold, 1)
	m, err := zklock.NewMutex(s, path, zklock.WithRevocation(func(h *zklock.Hold) { asked <- h }))
	require.NoError(t, err)
	_, err = m.Acquire(t.Context())
	require.NoError(t, err)
	r := revoke(t, srv, path)
	require.NoError(t, (<-asked).Release(t.Context()))
	require.Equal(t, 0, r.wait())
}

// The server goes while revoke waits: nobody knows whether the lock is still held, and each server
// has said something.
func TestRevoke_ServerGoes(t *testing.T) {
	t.Parallel()
	srv, path := zkserver.Single(t, zkserver.Own()), lockPath(t)
	occupy(t, session(t, srv), path)
	p := revoke(t, srv, "--wait", "8s", path)
	eventually(t, "it asks", func() bool { return strings.Contains(p.stdout.String(), "asked") })
	require.NoError(t, srv.Kill())
	require.Equal(t, exitNoServer, p.wait())
	require.Contains(t, p.stderr.String(), "it is not known whether it is still held; tried "+srv.Addr())
}

// The holder releases, and another client takes the lock, between the look of revoke and its
// message: the output names nobody as asked, and the code reports that. Of several holders those
// that are there are asked.
func TestRevoke_HolderIsGone_IsNotAsked(t *testing.T) {
	srv := zktest.Start(t)
	s := sessionAt(t, srv.Addr())
	revoke := func(args ...string) (code int, out, said string) {
		var stdout, stderr bytes.Buffer
		code = execute(append([]string{"revoke", "--servers", srv.Addr(), "--wait", "0"}, args...), &stdout, &stderr)
		return code, stdout.String(), stderr.String()
	}
	hold, _ := occupy(t, s, "/l")
	srv.Inject(zktest.Before(zktest.SetData).Path(hold.Node()).Once().Call(func() { _ = srv.Delete(hold.Node()) }))
	code, out, said := revoke("/l")
	require.Equal(t, exitNoHolder, code)
	require.Empty(t, out)
	require.Regexp(t, `^zklock: /l: not asked: \S+, pid \d+, session 0x\w+, node `+hold.Node()+`, no longer held it\n$`, said)

	rw, err := zklock.NewRWMutex(s, "/rw")
	require.NoError(t, err)
	var nodes []string
	for range 2 {
		h, err := rw.ReadLock().Acquire(t.Context())
		require.NoError(t, err)
		nodes = append(nodes, h.Node())
	}
	srv.Inject(zktest.Before(zktest.SetData).Path(nodes[0]).Once().Call(func() { _ = srv.Delete(nodes[0]) }))
	code, out, said = revoke("--all-holders", "/rw")
	require.Equal(t, 0, code, said)
	require.Contains(t, said, nodes[0]+", no longer held it\n")
	require.Regexp(t, `^/rw: asked .*, node `+nodes[1]+`\n$`, out)

	srv.Inject(zktest.Before(zktest.SetData).Path(nodes[1]).Once().Fail(zktest.NoAuth))
	code, out, said = revoke("/rw")
	require.Equal(t, exitRefused, code)
	require.Empty(t, out)
	require.Contains(t, said, "/rw: no WRITE permission on "+nodes[1])
}

// A path that does not exist is reported on stderr: it may be a typing error.
func TestPathThatIsNotThere_IsReported(t *testing.T) {
	srv := zktest.Start(t)
	const line = "zklock: /nigthly: there is no node /nigthly: no lock was ever taken there, or an unused one was removed\n"
	for _, tt := range []struct {
		code int
		args []string
		rest string
	}{
		{0, []string{"ls"}, ""}, {0, []string{"ls", "-r"}, ""}, {0, []string{"ls", "--held"}, ""}, {0, []string{"ls", "--json"}, ""},
		{0, []string{"prune"}, "zklock: /nigthly: there is nothing to remove\n"},
		{exitNoHolder, []string{"revoke"}, "zklock: /nigthly: no client was asked: no client holds it\n"},
	} {
		var out, said bytes.Buffer
		code := execute(append(tt.args, "--servers", srv.Addr(), "/nigthly"), &out, &said)
		require.Equal(t, tt.code, code, tt.args)
		require.Equal(t, line+tt.rest, said.String(), tt.args)
	}
}

func TestRevoke_Refusals(t *testing.T) {
	for want, args := range map[string][]string{
		"give the PATH of a lock": {},
		"must begin with a slash": {"locks/x"},
		"--wait -1s is negative":  {"--wait", "-1s", "/x"},
		"contradict each other":   {"--holder", "lock-0000000001", "--all-holders", "/x"},
		"no servers":              {"--servers", "", "/x"},
		"2 arguments instead of ": {"/x", "/y"},
	} {
		p := start(t, nil, append([]string{"revoke", "--servers", "127.0.0.1:1"}, args...)...)
		require.Equal(t, exitUsage, p.wait(), args)
		require.Contains(t, p.stderr.String(), want)
	}
	p := start(t, nil, "revoke", "--servers", "127.0.0.1:1", "--connect-timeout", "500ms", "/x")
	require.Equal(t, exitNoServer, p.wait())
}
