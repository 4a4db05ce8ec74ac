package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/zklock/zklock"
)

// dying is the session timeout of a holder that is killed: short, but with a margin for zklock's
// lease.
const dying = 10 * time.Second

// takeOver kills a process that holds the lock, and returns how long after one session timeout the
// next client has the lock. A server counts that timeout from the last request that it received,
// and expires sessions at its ticks, which are two seconds here. With a guard, the time begins at
// the death of the process.
func takeOver(open func(string) (session, error), w workload, addr, path string) (r result, err error) {
	path += "-0"
	s, err := open(addr)
	if err != nil {
		return r, err
	}
	defer s.close()
	rival := "zklock"
	if _, ok := s.(goZookeeper); ok {
		rival = "zk.Lock"
	}
	expected, env := dying, []string(nil)
	if w.Guard {
		socket, stop, err := startGuard()
		if err != nil {
			return r, err
		}
		defer stop()
		expected, env = 0, []string{"ZKLOCK_GUARD=" + socket}
	}
	kill, err := startHolder(env, rival, addr, path)
	if err != nil {
		return r, err
	}
	defer kill()
	got := make(chan error, 1)
	l := s.lock(path)
	go func() { got <- l.acquire() }()
	for queued(path) < 2 {
		select {
		case err := <-got:
			return r, fmt.Errorf("there are no two in the queue: %w", err)
		case <-time.After(time.Millisecond):
		}
	}
	start := time.Now()
	kill()
	if err := <-got; err != nil {
		return r, err
	}
	took := time.Since(start)
	return result{Ops: 1, Took: took, P50: took - expected}, l.release()
}

// startAgain kills a process with a session file that holds the lock, starts it again, and returns
// how long after the kill that has the lock.
func startAgain(addr, path string) (r result, err error) {
	dir, err := os.MkdirTemp("", "bench-file")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	var killed time.Time
	for range 2 {
		kill, err := startHolder(nil, "zklock", addr, path+"-0", filepath.Join(dir, "zk.session"))
		if err != nil {
			return r, err
		}
		took := time.Since(killed)
		r = result{Ops: 1, Took: took, P50: took}
		killed = time.Now()
		kill()
	}
	return r, nil
}

// startHolder starts a process that takes the lock, and returns when it has it. kill may be called
// again.
func startHolder(env []string, args ...string) (kill func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	holder := exec.Command(self, append([]string{"hold"}, args...)...)
	holder.Stderr, holder.Env = os.Stderr, append(os.Environ(), env...)
	if _, err := holder.StdinPipe(); err != nil { // the holder ends with this process
		return nil, err
	}
	out, err := holder.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := holder.Start(); err != nil {
		return nil, err
	}
	kill = func() { _ = holder.Process.Kill(); _ = holder.Wait() }
	if !bufio.NewScanner(out).Scan() {
		kill()
		return nil, errors.New("the holder ended")
	}
	return kill, nil
}

// holdOn is the holder's process.
func holdOn(args []string) error {
	if len(args) != 3 && len(args) != 4 {
		return fmt.Errorf("hold RIVAL ADDRESS PATH [SESSION-FILE], not %q", args)
	}
	timeout = dying
	open := func(addr string) (session, error) { return openOurs(addr) }
	switch {
	case args[0] == "zk.Lock":
		open = openGoZookeeper
	case len(args) == 4:
		open = func(addr string) (session, error) { return openOurs(addr, zklock.WithSessionFile(args[3])) }
	}
	s, err := open(args[1])
	if err != nil {
		return err
	}
	if err := s.lock(args[2]).acquire(); err != nil {
		return err
	}
	fmt.Println("held")
	_, err = io.Copy(io.Discard, os.Stdin) // until the parent ends, or kills us
	return err
}

// startGuard starts zklock guard, and returns when it listens.
func startGuard() (socket string, stop func(), err error) {
	dir, err := os.MkdirTemp("", "bench-guard")
	if err != nil {
		return "", nil, err
	}
	command, socket := filepath.Join(dir, "zklock"), filepath.Join(dir, "sock")
	guard := exec.Command(command, "guard", "--listen", socket)
	stop = func() {
		if guard.Process != nil {
			_ = guard.Process.Kill()
			_ = guard.Wait()
		}
		_ = os.RemoveAll(dir)
	}
	build := exec.Command("go", "build", "-o", command, ".")
	build.Dir, build.Stderr = "../cmd/zklock", os.Stderr
	if err = errors.Join(build.Run(), guard.Start()); err != nil {
		stop()
		return "", nil, err
	}
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		if conn, err := net.Dial("unix", socket); err == nil {
			return socket, stop, conn.Close()
		}
	}
	stop()
	return "", nil, errors.New("the guard does not listen")
}
