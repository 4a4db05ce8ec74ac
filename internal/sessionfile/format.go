package sessionfile

// The text of a session file. This file is pure: it reads no file and no clock.
//
//	zklock session file 1
//	boot 6ae9a5ad-83d1-4c1c-8b8f-2b1b4f9c0d3e
//	file 64513 1311022
//	servers zk1:2181,zk2:2181,zk3:2181
//	owner 4711 8812345 pid:[4026531836]
//	session 0x10000658c6e0000 5f0e…c3 30000 8d1fa2b7

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zklock/zklock/internal/sessionkey"
)

const (
	size        = 4096 // of every session file, so that a change is one write into one page
	maxSessions = 16
	maxServers  = 2048 // bytes of the header's servers; one that clients share is enough
	magic       = "zklock session file "
	version     = magic + "1\n"
)

// header identifies the file and the process that wrote it.
type header struct {
	boot    string // the id of this boot of the machine; "" if it has none
	file    fileID // of the file itself, which a copy does not have
	servers []string
	owner   process
}

// fileID identifies a file. While a process has the file open, no other file has the same fileID.
type fileID struct{ device, inode uint64 }

// process identifies a process, even if its number is used again. The zero value is no process.
type process struct {
	pid   int
	start uint64 // its start, in the clock ticks of /proc
	space string // its pid namespace; "" if that is unknown
}

func (h header) String() string {
	servers := slices.Clone(h.servers)
	slices.Sort(servers)
	for len(strings.Join(servers, ",")) > maxServers {
		servers = servers[:len(servers)-1]
	}
	return fmt.Sprintf("%sboot %s\nfile %d %d\nservers %s\nowner %d %d %s\n", version,
		h.boot, h.file.device, h.file.inode, strings.Join(servers, ","), h.owner.pid, h.owner.start, h.owner.space)
}

// image returns the whole file: the header, the newest sessions, and empty lines.
func image(h header, sessions []sessionkey.Key) []byte {
	head := h.String()
	b := []byte(head)
	for _, k := range sessions[max(0, len(sessions)-maxSessions):] {
		b = append(b, line(head, k)...)
	}
	return append(b, bytes.Repeat([]byte("\n"), max(0, size-len(b)))...)
}

// line returns the line of a session. Its checksum includes the header, so a line counts only under
// the header with which it was written.
func line(head string, k sessionkey.Key) string {
	text := fmt.Sprintf("session %#x %x %d ", uint64(k.ID), []byte(k.Password), k.Timeout.Milliseconds())
	return fmt.Sprintf("%s%08x\n", text, crc32.ChecksumIEEE([]byte(head+text)))
}

// parse reads a file. A line that is not exactly as it was written is counted as torn.
func parse(b []byte) (h header, sessions []sessionkey.Key, torn int, ok bool) {
	head, rest, _ := strings.Cut(string(b), "session 0x")
	if h, ok = parseHeader(head); !ok {
		return h, nil, 0, false
	}
	for l := range strings.Lines("session 0x" + rest) {
		var k sessionkey.Key
		var millis int64
		f := strings.Fields(l)
		if len(f) == 5 {
			id, _ := strconv.ParseUint(f[1], 0, 64)
			k.ID = int64(id)
			k.Password, _ = hex.DecodeString(f[2])
			millis, _ = strconv.ParseInt(f[3], 10, 32)
			k.Timeout, k.Servers = time.Duration(millis)*time.Millisecond, h.servers
		}
		switch {
		case strings.TrimSpace(l) == "" || l == "session 0x":
		case k.ID == 0 || k.Timeout <= 0 || line(head, k) != l:
			torn++
		default:
			sessions = append(sessions, k)
		}
	}
	return h, sessions, torn, true
}

func parseHeader(head string) (h header, ok bool) {
	head, found := strings.CutPrefix(head, version)
	l := strings.Split(head, "\n")
	if !found || len(l) < 5 {
		return h, false
	}
	h.boot = strings.TrimPrefix(l[0], "boot ")
	h.servers = strings.Split(strings.TrimPrefix(l[2], "servers "), ",")
	_, err := fmt.Sscanf(l[1], "file %d %d", &h.file.device, &h.file.inode)
	if err == nil {
		_, err = fmt.Sscanf(l[3], "owner %d %d", &h.owner.pid, &h.owner.start)
	}
	if f := strings.Fields(l[3]); len(f) == 4 {
		h.owner.space = f[3]
	}
	return h, err == nil
}

// mismatch returns why the sessions of a header are of no use to a process with another header, ""
// if they can be ended.
func (h header) mismatch(now header) string {
	switch {
	case now.boot == "":
		return "this machine has no boot id"
	case h.boot != now.boot:
		return "the machine was started again, or is another one"
	case h.file != now.file:
		return "the file is a copy"
	case !slices.ContainsFunc(h.servers, func(s string) bool { return slices.Contains(now.servers, s) }):
		return "its sessions are of other servers"
	}
	return ""
}
