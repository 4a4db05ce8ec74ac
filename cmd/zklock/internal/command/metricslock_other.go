//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package command

import (
	"os"
	"path/filepath"
)

const locksBeside = false

// lockBeside locks nothing here: the last run that writes wins.
func lockBeside(name string) (*os.File, error) {
	return os.OpenFile(besideName(name, "lock"), os.O_RDONLY|os.O_CREATE, 0o644)
}

// besides creates a file that is about to replace another, with a name that no other run has.
func besides(name string) (*os.File, error) {
	return os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*.tmp")
}
