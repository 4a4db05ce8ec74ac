//go:build !unix

package demo

import (
	"errors"
	"os"
)

// There is no signal that stops a process.
const canStop = false

func stopProcess(*os.Process) error     { return errors.ErrUnsupported }
func continueProcess(*os.Process) error { return errors.ErrUnsupported }
