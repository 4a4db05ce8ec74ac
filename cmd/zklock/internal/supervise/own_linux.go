package supervise

// How zklock stops or ends by a signal, as the command did.

import (
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sigaction is as large as the kernel's on any architecture. All zero, it is the default action.
type sigaction [20]uint64

// setAction sets the effect of a signal on this process, bypassing the Go runtime, whose handlers
// keep a signal from stopping or ending it. It returns the previous action.
func setAction(sig syscall.Signal, action sigaction) (before sigaction) {
	size := uintptr(8) // of a set of signals
	if strings.HasPrefix(runtime.GOARCH, "mips") {
		size = 16
	}
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig),
		uintptr(unsafe.Pointer(&action)), uintptr(unsafe.Pointer(&before)), size, 0, 0)
	return before
}

// raise has the signal take its default effect on this process, before raise returns. If group is
// set, our whole process group gets the signal.
//
// Our own signal is blocked until the group has its. If that stops us first, the SIGCONT that
// continues us discards ours.
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

// stopSelf stops zklock by the signal that stopped the command. It returns when zklock was
// continued.
func stopSelf(sig syscall.Signal, group bool) { raise(sig, group) }

// DieOf ends zklock by the signal that ended the command. It returns if the kernel prevents that,
// as in the first process of a container. A core dump of zklock must not overwrite the command's.
func DieOf(sig syscall.Signal, group bool) {
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	raise(sig, group)
}
