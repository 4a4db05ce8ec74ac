package watch

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// peer is the process that has connected.
type peer struct {
	conn  *net.UnixConn
	pid   int           // for messages
	pidfd *os.File      // nil if the process was dead already
	done  chan struct{} // closed when its sessions were ended, or are not to be
}

// newPeer rejects a process of another user, and one whose death the kernel does not report to us.
func newPeer(conn *net.UnixConn) (p *peer, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	var cred *unix.Ucred
	if cerr := raw.Control(func(socket uintptr) {
		if cred, err = unix.GetsockoptUcred(int(socket), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			fd, err = unix.GetsockoptInt(int(socket), unix.SOL_SOCKET, unix.SO_PEERPIDFD)
		}
	}); cerr != nil {
		return nil, cerr
	}
	if cred == nil {
		return nil, err
	}
	if err != nil && cred.Pid > 0 { // before Linux 6.5, or the process is dead
		// If another process has the number by now, the first one is dead, and its sessions are only
		// ended later.
		fd, err = unix.PidfdOpen(int(cred.Pid), 0)
	}
	p = &peer{conn: conn, pid: int(cred.Pid), done: make(chan struct{})}
	if err == nil {
		_ = unix.SetNonblock(fd, true) // so awaitDeath needs no thread
		p.pidfd = os.NewFile(uintptr(fd), "pidfd")
	}
	switch {
	case cred.Uid != uint32(os.Geteuid()):
		p.close()
		return nil, fmt.Errorf("it is from a process of user %d, and the guard has user %d: run a guard for each user", cred.Uid, os.Geteuid())
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
		p.close()
		return nil, advised(err)
	case err != nil && !errors.Is(err, unix.ESRCH):
		p.close()
		return nil, fmt.Errorf("the kernel does not show us the death of its process (%w): use Linux 6.5 or later, or share the PID namespace with the guard", err)
	}
	return p, nil
}

// advised names the limit that the process has reached.
func advised(err error) error {
	if errors.Is(err, unix.EMFILE) {
		return fmt.Errorf("%w: each Session needs two: raise the guard's limit (ulimit -n, LimitNOFILE= of its unit)", err)
	}
	return err
}

// isDead reports whether the process is dead, with all of its threads.
func (p *peer) isDead() bool {
	dead := p.pidfd == nil
	if !dead {
		if raw, err := p.pidfd.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { dead = readable(fd) })
		}
	}
	return dead
}

// awaitDeath waits until the process is dead. It returns false if the kernel does not report that.
func (p *peer) awaitDeath() bool {
	if p.pidfd == nil {
		return true
	}
	raw, err := p.pidfd.SyscallConn()
	return err == nil && raw.Read(readable) == nil
}

func readable(pidfd uintptr) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	for err == unix.EINTR {
		n, err = unix.Poll(fds, 0)
	}
	return err == nil && n == 1 && fds[0].Revents&unix.POLLIN != 0
}

func (p *peer) close() {
	_ = p.conn.Close()
	if p.pidfd != nil {
		_ = p.pidfd.Close()
	}
}
