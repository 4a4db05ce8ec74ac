//go:build unix

package demo

import "syscall"

func init() { stopSignal, contSignal = syscall.SIGSTOP, syscall.SIGCONT }
