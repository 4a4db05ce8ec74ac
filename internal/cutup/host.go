//go:build linux

package cutup

// Host: connections and processes on a host of the network, and only there.

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Host is one host of a Network.
type Host struct {
	net  *Network
	name string
	ip   string
}

// Name returns the name that was passed to New.
func (h *Host) Name() string { return h.name }

// IP returns its address.
func (h *Host) IP() string { return h.ip }

// Namespace returns the name of its network namespace.
func (h *Host) Namespace() string { return h.net.space(h.name) }

// Front returns the words that make a command run on this host when they precede it.
func (h *Host) Front() []string { return []string{"ip", "netns", "exec", h.Namespace()} }

// Command prepares a process on this host. It has a process group of its own, and is killed when
// the thread that starts it ends: the caller starts it on a locked thread that it keeps, or ends
// the process itself.
func (h *Host) Command(name string, args ...string) *exec.Cmd {
	words := append(append(h.Front(), name), args...)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// Dial connects from this host. The address must be an IP address, because there is no name
// service.
//
// A socket belongs permanently to the namespace of the thread that created it, so it is enough that
// this thread is in the namespace while it dials.
func (h *Host) Dial(network, addr string, timeout time.Duration) (conn net.Conn, err error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if net.ParseIP(host) == nil {
		return nil, fmt.Errorf("dial %s from %s: not an IP address", addr, h.name)
	}
	err = h.inside(func() error {
		conn, err = net.DialTimeout(network, addr, timeout)
		return err
	})
	return conn, err
}

// Listen listens on this host.
func (h *Host) Listen(port int) (l net.Listener, err error) {
	err = h.inside(func() error {
		l, err = net.Listen("tcp", fmt.Sprintf("%s:%d", h.ip, port))
		return err
	})
	return l, err
}

// inside calls f on a thread that is in the host's namespace.
func (h *Host) inside(f func() error) (err error) {
	there, err := os.Open("/run/netns/" + h.Namespace())
	if err != nil {
		return err
	}
	defer there.Close()
	runtime.LockOSThread()
	home, err := os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer home.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("setns to %s: %w", h.name, err)
	}
	defer func() {
		if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
			err = errors.Join(err, fmt.Errorf("setns back from %s: %w", h.name, back))
			return // the thread stays locked and ends with its goroutine, so no other goroutine gets it
		}
		runtime.UnlockOSThread()
	}()
	return f()
}
