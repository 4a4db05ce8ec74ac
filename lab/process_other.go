//go:build !linux

package main

import (
	"os/exec"
	"syscall"
)

func endWithParent(*syscall.SysProcAttr) {}

func startLocked(cmd *exec.Cmd) error { return cmd.Start() }
