package supervise

// What zklock does to itself by a signal: it stops, or ends, as the command did.

import (
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sigaction is as large as the kernel's on any architecture. All zero, it is the default action.
type sigaction [20]uint64

// setAction sets what a signal does to this process, past the Go runtime, whose handlers keep a signal from stopping or
// ending it. It returns what the signal did before.
func setAction(sig syscall.Signal, action sigaction) (before sigaction) {
	size := uintptr(8) // of a set of signals
	if strings.HasPrefix(runtime.GOARCH, "mips") {
		size = 16
	}
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig),
		uintptr(unsafe.Pointer(&action)), uintptr(unsafe.Pointer(&before)), size, 0, 0)
	return before
}

// raise has the signal do to this process what it does by default, before raise returns. If group is set, the signal goes to
// all of our process group.
//
// Our own is kept back until the group has its. If that stops us first, the SIGCONT that continues us discards ours.
func raise(sig syscall.Signal, group bool) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := setAction(sig, sigaction{})
	var mask unix.Sigset_t
	bits := uint(unsafe.Sizeof(mask.Val[0]) * 8)
	mask.Val[uint(sig-1)/bits] = 1 << (uint(sig-1) % bits)
	_ = unix.PthreadSigmask(unix.SIG_BLOCK, &mask, nil)
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), sig)
	if group {
		_ = unix.Kill(0, sig)
	}
	_ = unix.PthreadSigmask(unix.SIG_UNBLOCK, &mask, nil)
	setAction(sig, before)
}

// stopSelf stops zklock by the signal that stopped the command. It returns when zklock was continued.
func stopSelf(sig syscall.Signal, group bool) { raise(sig, group) }

// DieOf ends zklock by the signal that ended the command. It returns if the kernel does not let it, as in the first process of
// a container. Our memory must not be dumped over the command's.
func DieOf(sig syscall.Signal, group bool) {
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	raise(sig, group)
}
