//go:build !unix

package zkserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// tieToThisProcess does nothing here: a test process that is killed leaves its servers behind.
func tieToThisProcess(*exec.Cmd) {}

// terminate kills: there is no gentler signal here. ZooKeeper is made to be killed.
func terminate(p *os.Process) error { return p.Kill() }

func pause(*os.Process) error { return fmt.Errorf("pausing a process: %w", errors.ErrUnsupported) }

func resume(*os.Process) error { return fmt.Errorf("resuming a process: %w", errors.ErrUnsupported) }
