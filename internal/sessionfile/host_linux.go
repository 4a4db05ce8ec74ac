package sessionfile

// What Linux reports of the machine, its processes and its file systems.

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

func bootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}

// thisProcess has no namespace if /proc is that of another one, such as a sandbox's parent: the
// numbers there mean other processes, and the lock is the only proof that a process is dead.
func thisProcess() process {
	self, _ := os.Readlink("/proc/self")
	space, err := os.Readlink("/proc/self/ns/pid")
	start, _, serr := stat(os.Getpid())
	if err != nil || serr != nil || self != strconv.Itoa(os.Getpid()) {
		return process{pid: os.Getpid()}
	}
	return process{os.Getpid(), start, space}
}

// lives reports whether the process exists in this pid namespace. The process of a Session that was
// closed is the zero process, which does not.
func lives(p process) bool {
	if p.pid == 0 || p.space == "" {
		return false
	}
	start, isDead, err := stat(p.pid)
	return err == nil && start == p.start && !isDead
}

// stat returns the start of a process, and whether all of its threads have ended although its
// parent has not waited for it. State Z alone does not show that: a process whose first thread has
// ended is in it, too, while its other threads work.
func stat(pid int) (start uint64, isDead bool, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, syscall.ESRCH) { // it ended while we read
		return 0, true, fs.ErrNotExist
	}
	if err != nil {
		return 0, false, err
	}
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:]) // the name before it may contain anything
	if len(f) < 20 {
		return 0, false, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(f))
	}
	start, err = strconv.ParseUint(string(f[19]), 10, 64)
	threads, terr := strconv.Atoi(string(f[17]))
	return start, bytes.ContainsAny(f[0], "ZX") && threads <= 1, errors.Join(err, terr)
}

// shared are the file systems that several kernels can mount, or that a program implements. On
// these, a lock may exclude the processes of one kernel only, or outlive its process.
var shared = map[uint32]string{
	0x6969: "NFS", 0x517b: "SMB", 0xff534d42: "CIFS", 0xfe534d42: "SMB2", 0x65735546: "FUSE", 0x01021997: "9p",
	0x00c36400: "Ceph", 0x5346414f: "AFS", 0x6b414653: "AFS", 0x73757245: "Coda", 0x564c: "NCP", 0x7461636f: "OCFS2",
	0x01161970: "GFS2", 0x0bd00bd0: "Lustre", 0x47504653: "GPFS", 0x19830326: "BeeGFS", 0x786f4256: "VirtualBox folders",
	0xaad7aaea: "PanFS", 0x013111a8: "IBRIX", 0xbacbacbc: "VMware folders", 0xbebebebe: "Tintri", 0x7c7c6673: "Parallels folders",
}

func checkFileSystem(file *os.File) error {
	var st syscall.Statfs_t
	if err := syscall.Fstatfs(int(file.Fd()), &st); err != nil {
		return err
	}
	if name := shared[uint32(st.Type)]; name != "" {
		return fmt.Errorf("it is on %s, whose locks do not show that a process is dead; give a path on a local file system, such as below /run", name)
	}
	return nil
}
