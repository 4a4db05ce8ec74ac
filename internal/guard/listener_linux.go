package guard

import (
	"fmt"
	"net"
	"os"
	"syscall"
)

// checkListener returns an error if another user listens at the socket. Whoever listens gets the
// passwords of the sessions, and another user can take the name of a guard that was killed.
func checkListener(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *syscall.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		peer, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if failed == nil && int(peer.Uid) != os.Geteuid() {
		failed = fmt.Errorf("user %d listens there, and this process is user %d", peer.Uid, os.Geteuid())
	}
	return failed
}
