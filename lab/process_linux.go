package main

import (
	"os/exec"
	"runtime"
	"syscall"
)

// endWithParent has the kernel end the child when the thread ends that started it.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

var starts = func() chan func() {
	c := make(chan func())
	go func() {
		runtime.LockOSThread() // for ever: a child ends with the thread that started it
		for f := range c {
			f()
		}
	}()
	return c
}()

// startLocked starts a command from a thread that lives as long as the lab.
func startLocked(cmd *exec.Cmd) error {
	result := make(chan error)
	starts <- func() { result <- cmd.Start() }
	return <-result
}
