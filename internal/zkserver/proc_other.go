//go:build !unix

package zkserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// tieToThisProcess does nothing here: the servers of a killed test process continue to run.
func tieToThisProcess(*exec.Cmd) {}

// terminate kills the process, because these systems have no gentler signal. ZooKeeper survives
// that.
func terminate(p *os.Process) error { return p.Kill() }

func pause(*os.Process) error { return fmt.Errorf("pausing a process: %w", errors.ErrUnsupported) }

func resume(*os.Process) error { return fmt.Errorf("resuming a process: %w", errors.ErrUnsupported) }
