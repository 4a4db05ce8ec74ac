package supervise

// How zklock stops or ends by a signal, as the command did. On macOS that involves the Go runtime.

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stopSelf stops zklock. If group is set, our whole process group gets the signal. zklock itself
// stops by SIGSTOP, because SIGTSTP cannot stop a Go program that has ever handled it. It returns
// when zklock was continued.
func stopSelf(sig syscall.Signal, group bool) {
	cont := make(chan os.Signal, 1)
	signal.Notify(cont, syscall.SIGCONT)
	defer signal.Stop(cont)
	if group {
		toOthers(sig)
	}
	_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
	select {
	case <-cont:
	case <-time.After(time.Second): // does not pass while we are stopped; if it passes, something kept us from it
	}
}

// DieOf ends zklock by the signal that ended the command. It returns after a signal that the Go
// runtime handles in another way.
func DieOf(sig syscall.Signal, group bool) {
	if group {
		toOthers(sig)
	}
	switch sig {
	case syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL:
		signal.Reset(sig)
		_ = unix.Kill(unix.Getpid(), sig)
		time.Sleep(time.Second) // another thread may get it
	}
}

// toOthers sends the signal to our process group, and ignores it itself.
func toOthers(sig syscall.Signal) {
	if signal.Ignored(sig) {
		_ = unix.Kill(0, sig)
		return
	}
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, sig)
	defer signal.Stop(ch)
	_ = unix.Kill(0, sig)
	<-ch
}
