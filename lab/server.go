package main

// Real servers, started by the lab: the faults that an experiment may inject, and the process of
// each.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// A ServerKind starts servers that several systems may share.
type ServerKind struct {
	Name  string // redis
	Start func(ctx context.Context, p Plan) (Cluster, error)
}

// Plan says which servers to start.
type Plan struct {
	Dir   string               // an empty directory for their files; it is removed after Close
	Size  int                  // how many
	TTL   time.Duration        // the lock's time that clients will request: servers that limit it must allow it
	Env   func(i int) []string // additional environment for server i; nil for none
	Split bool                 // the Cluster must be a Splitter, if possible
	Tick  time.Duration        // ZooKeeper's
}

// Cluster is a set of running servers. Only one goroutine at a time calls its methods, except
// Addrs.
type Cluster interface {
	Addrs() []string     // one for each server, as host:port
	Version() string     // "Redis 7.0.15"
	Pids() []int         // one for each server; 0 where it does not run
	Kill(i int) error    // SIGKILL; waits for its end
	Stop(i int) error    // SIGSTOP
	Cont(i int) error    // SIGCONT
	Restart(i int) error // starts it again after Kill, with its address and its data on disk, and waits until it serves
	Close() error        // ends all, and returns after the last has ended
}

// Replica is implemented by clusters in which server 1 is an asynchronous copy of server 0.
type Replica interface {
	CutReplication() error // the replica receives nothing any more
	Promote() error        // the replica becomes the primary. The proxies redirect clients to it.
}

// Splitter is implemented by clusters whose servers can be cut off from each other, but not from
// clients.
type Splitter interface {
	Leads(i int) (bool, error) // whether server i is the leader
	Isolate(i int) error       // server i and the other servers cannot reach each other
	Heal() error
}

// Missing is the error for a program that is not installed.
type Missing struct {
	Program string
	Package string // Debian's package
}

func (m *Missing) Error() string {
	if m.Package == "" {
		return fmt.Sprintf("%s is not there; `make nightly PART=lab` builds it", m.Program)
	}
	return fmt.Sprintf("%s is not installed; `scripts/setup lab` or `apt-get install %s` gets it", m.Program, m.Package)
}

// program finds a program in the path, or in one of the directories, which may be patterns. It
// fails with a *Missing.
func program(name, debian string, dirs ...string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range dirs {
		found, err := filepath.Glob(filepath.Join(dir, name))
		if err == nil && len(found) > 0 {
			return found[len(found)-1], nil
		}
	}
	return "", &Missing{Program: name, Package: debian}
}

// process is a server's process. A restart uses its first command.
type process struct {
	Path string
	Args []string
	Env  []string // in addition to the lab's own
	Dir  string   // its working directory
	Log  string   // the file with its output
	Cred *syscall.Credential

	mu struct {
		sync.Mutex
		cmd  *exec.Cmd
		done chan struct{} // closed when it has ended
		err  error         // its exit error
	}
}

// start starts the process. It does not outlive the lab.
func (p *process) start() error {
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.Path, p.Args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = append(os.Environ(), p.Env...), p.Dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: p.Cred}
	endWithParent(cmd.SysProcAttr)
	if err := startLocked(cmd); err != nil {
		return err
	}
	done := make(chan struct{})
	p.mu.Lock()
	p.mu.cmd, p.mu.done = cmd, done
	p.mu.Unlock()
	go func() {
		err := cmd.Wait()
		p.mu.Lock()
		p.mu.err = err
		p.mu.Unlock()
		close(done)
	}()
	return nil
}

// pid returns 0 if the process does not run.
func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.cmd == nil {
		return 0
	}
	select {
	case <-p.mu.done:
		return 0
	default:
		return p.mu.cmd.Process.Pid
	}
}

// ended returns an error with the end of the log, if the process has ended by itself.
func (p *process) ended() error {
	if p.pid() != 0 {
		return nil
	}
	log, _ := os.ReadFile(p.Log)
	return fmt.Errorf("%s has ended:\n%s", filepath.Base(p.Path), log[max(0, len(log)-2000):])
}

func (p *process) signal(s syscall.Signal) error {
	pid := p.pid()
	if pid == 0 {
		return p.ended()
	}
	return syscall.Kill(pid, s)
}

// end signals the process and waits until it has ended; after ten seconds it kills the process.
func (p *process) end(s syscall.Signal) error {
	pid := p.pid()
	if pid == 0 {
		return nil
	}
	p.mu.Lock()
	done := p.mu.done
	p.mu.Unlock()
	if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	select {
	case <-done:
		return nil
	case <-time.After(10 * time.Second):
		_ = syscall.Kill(-pid, syscall.SIGKILL)
		<-done
		return nil
	}
}

// processes is the common part of every Cluster: server i is process i.
type processes struct {
	procs []*process
	addrs []string
	ready func(ctx context.Context, i int) error // checks once whether server i serves
	last  syscall.Signal                         // the signal for a clean end; SIGTERM if zero
}

func (c *processes) Addrs() []string  { return c.addrs }
func (c *processes) Kill(i int) error { return c.procs[i].end(syscall.SIGKILL) }
func (c *processes) Stop(i int) error { return c.procs[i].signal(syscall.SIGSTOP) }
func (c *processes) Cont(i int) error { return c.procs[i].signal(syscall.SIGCONT) }

func (c *processes) Pids() (pids []int) {
	for _, p := range c.procs {
		pids = append(pids, p.pid())
	}
	return pids
}

func (c *processes) Restart(i int) error {
	if err := c.procs[i].start(); err != nil {
		return err
	}
	return c.await(i)
}

// startAll starts all servers, and waits until each serves. If one does not, it ends the others.
func (c *processes) startAll() error {
	for _, p := range c.procs {
		if err := p.start(); err != nil {
			return errors.Join(err, c.Close())
		}
	}
	for i := range c.procs {
		if err := c.await(i); err != nil {
			return errors.Join(err, c.Close())
		}
	}
	return nil
}

// await waits at most 60 s until server i serves.
func (c *processes) await(i int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	for {
		once, stop := context.WithTimeout(ctx, 5*time.Second)
		err := c.ready(once, i)
		stop()
		if err == nil {
			return nil
		}
		if ended := c.procs[i].ended(); ended != nil {
			return ended
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not serve: %w", c.addrs[i], err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (c *processes) Close() error {
	last := c.last
	if last == 0 {
		last = syscall.SIGTERM
	}
	var errs []error
	for _, p := range c.procs {
		if p.pid() != 0 {
			_ = p.signal(syscall.SIGCONT)
		}
		errs = append(errs, p.end(last))
	}
	return errors.Join(errs...)
}
