package command

// The socket of the guard, and the command that it runs.

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/zklock/zklock/cmd/zklock/internal/supervise"
	"github.com/zklock/zklock/cmd/zklock/internal/watch"
	"github.com/zklock/zklock/internal/guard"
)

// endsWithin is how long guard waits before its own end for the end of the sessions of dead
// processes.
const endsWithin = time.Second

func (g *guarding) run() error {
	w := watch.New(g.end, g.logf)
	if g.listen != "" {
		return g.serve(w)
	}
	program, err := findProgram(g.argv[0])
	if err != nil {
		return err
	}
	l, remove, err := ownSocket()
	if err != nil {
		return exitf(exitUsage, "cannot create the socket: %w", err)
	}
	defer remove()
	served := make(chan error, 1)
	go func() { served <- w.Serve(l) }()
	out := supervise.Child(program, g.argv, setenv(os.Environ(), guard.EnvSocket+"="+l.Addr().String()))
	drain(w, l, served)
	switch {
	case out.Err != nil:
		return &exitError{out.Exit, out.Err}
	case out.Died != nil:
		remove()
		return interrupted{signal: out.Died}
	case out.Exit != 0:
		return &exitError{code: out.Exit}
	}
	return nil
}

// drain accepts the connections that were opened before now, and waits until the sessions of dead
// processes were ended.
func drain(w *watch.Guard, l *net.UnixListener, served <-chan error) {
	_ = l.SetDeadline(time.Now().Add(10 * time.Millisecond))
	<-served
	w.Drain(endsWithin)
}

// serve serves at --listen until a signal arrives.
func (g *guarding) serve(w *watch.Guard) error {
	signals := make(chan os.Signal, 1)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if !signal.Ignored(s) { // as under nohup, and SIGINT in the background of a script
			signal.Notify(signals, s)
		}
	}
	l, err := listenAt(g.listen)
	if err != nil {
		return exitf(exitUsage, "--listen %s: %w", g.listen, err)
	}
	served := make(chan error, 1)
	go func() { served <- w.Serve(l) }()
	g.logf("listening at %s", g.listen)
	select {
	case s := <-signals:
		drain(w, l, served) // the process may have been asked to end together with its guard
		_ = l.Close()
		return interrupted{signal: s}
	case err := <-served:
		return exitf(exitUsage, "--listen %s: %w", g.listen, err)
	}
}

// listenAt creates a socket that only this user can connect to. It replaces the socket of a guard
// that has ended, and nothing else. Of guards that start at the same time, the second would remove
// the socket of the first, which it has found before that listened. So a guard locks a file while
// it starts, which no other user can open. It does not wait for the lock: the guard that has it is
// about to listen. The file is not removed, because then two guards could lock two files. Nor is
// the socket removed at the end, because it may be the next guard's.
func listenAt(path string) (*net.UnixListener, error) {
	if !strings.HasPrefix(path, "@") { // an abstract name, which has no socket to replace
		lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
		if err != nil {
			return nil, err
		}
		defer lock.Close()
		if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			return nil, fmt.Errorf("another guard listens there, or is about to: %s: %w", lock.Name(), err)
		}
	}
	l, err := listenPrivately(path)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return l, err
	}
	conn, dialErr := net.Dial("unix", path)
	if dialErr == nil {
		_ = conn.Close()
		return nil, errors.New("another guard listens there")
	}
	if info, statErr := os.Lstat(path); !errors.Is(dialErr, syscall.ECONNREFUSED) || statErr != nil || info.Mode().Type() != os.ModeSocket {
		return nil, err
	}
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	return listenPrivately(path)
}

func listenPrivately(path string) (*net.UnixListener, error) {
	defer unix.Umask(unix.Umask(0o177))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err == nil {
		l.SetUnlinkOnClose(false)
	}
	return l, err
}

// ownSocket creates a socket for COMMAND. Where no directory can be written, it has no file. remove
// may be called again.
func ownSocket() (l *net.UnixListener, remove func(), err error) {
	if dir, err := os.MkdirTemp("", "zklock-guard-"); err == nil {
		remove = func() { _ = os.RemoveAll(dir) }
		if l, err = listenPrivately(filepath.Join(dir, "sock")); err == nil {
			return l, remove, nil
		}
		remove()
	}
	l, err = listenPrivately(fmt.Sprintf("@zklock-guard-%s", rand.Text()))
	return l, func() {}, err
}
