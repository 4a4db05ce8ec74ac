package sessionfile

// What macOS reports of the machine and its file systems.

import (
	"errors"
	"os"
	"syscall"
)

func bootID() string {
	id, _ := syscall.Sysctl("kern.bootsessionuuid")
	return id
}

// thisProcess has no start and no namespace: the lock is the only proof that a process is dead.
func thisProcess() process { return process{pid: os.Getpid()} }

func lives(process) bool { return false }

const mntLocal = 0x1000 // MNT_LOCAL

func checkFileSystem(file *os.File) error {
	var st syscall.Statfs_t
	if err := syscall.Fstatfs(int(file.Fd()), &st); err != nil {
		return err
	}
	if st.Flags&mntLocal == 0 {
		return errors.New("it is on a file system of the network, whose locks do not show that a process is dead; give a path on a local one")
	}
	return nil
}
