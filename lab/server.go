package main

// Real servers, started by the lab: what an experiment may do to them, and the process under each.

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
	Dir   string               // an empty directory for what they write; it is removed after Close
	Size  int                  // how many
	TTL   time.Duration        // the lock's time that clients will ask for: servers that bound it must allow it
	Env   func(i int) []string // more of the environment for server i; nil for none
	Split bool                 // the Cluster must be a Splitter, if it can
	Tick  time.Duration        // ZooKeeper's
}

// Cluster is servers that run. Its methods are called by one goroutine at a time, but for Addrs.
type Cluster interface {
	Addrs() []string     // one for each server, as host:port
	Version() string     // "Redis 7.0.15"
	Pids() []int         // one for each server; 0 where it does not run
	Kill(i int) error    // SIGKILL, and waits for its end
	Stop(i int) error    // SIGSTOP
	Cont(i int) error    // SIGCONT
	Restart(i int) error // starts it again after Kill, with its address and what it has on disk, and waits until it serves
	Close() error        // ends all, and returns after the last
}

// Replica is implemented by clusters of which server 0 writes and server 1 copies it, asynchronously.
type Replica interface {
	CutReplication() error // the replica gets nothing any more
	Promote() error        // the replica becomes the one that writes. Clients are sent to it by their proxies.
}

// Splitter is implemented by clusters whose servers can be cut off from each other, clients aside.
type Splitter interface {
	Leads(i int) (bool, error) // whether server i is the leader
	Isolate(i int) error       // server i and the others do not hear each other
	Heal() error
}

// Missing says that a program is not installed.
type Missing struct {
	Program string
	Package string // Debian's
}

func (m *Missing) Error() string {
	if m.Package == "" {
		return fmt.Sprintf("%s is not there; `make bin/%[1]s` builds it", m.Program)
	}
	return fmt.Sprintf("%s is not installed; `scripts/setup lab` or `apt-get install %s` gets it", m.Program, m.Package)
}

// program finds a program in the path, or in one of the directories, whose names may be patterns. It fails with a *Missing.
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

// process is a server's process. It is started again as it was first started.
type process struct {
	Path string
	Args []string
	Env  []string // beside the lab's own
	Dir  string   // where it runs
	Log  string   // the file that has what it prints
	Cred *syscall.Credential

	mu struct {
		sync.Mutex
		cmd  *exec.Cmd
		done chan struct{} // closed when it has ended
		err  error         // how
	}
}

// start starts it. It does not outlive the lab.
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

// pid returns 0 if it does not run.
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

// ended says whether it has ended by itself, with the end of its log.
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

// end signals it, and waits until it has ended; after ten seconds it is killed.
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

// processes is the part of a Cluster that is the same for all: server i is process i.
type processes struct {
	procs []*process
	addrs []string
	ready func(ctx context.Context, i int) error // one try whether server i serves
	last  syscall.Signal                         // what ends them well; SIGTERM if zero
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

// startAll starts all, and waits until each serves. What has started is ended if one does not.
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

// await waits until server i serves: 60 s at the most.
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
