package sessionfile

// These tests attack format.go: which lines of a file count.

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/sessionkey"
)

var head = header{
	boot: "6ae9a5ad", file: fileID{64513, 1311022}, servers: []string{"zk2:2181", "zk1:2181"},
	owner: process{4711, 8812345, "pid:[4026531836]"},
}

func key(id int64) sessionkey.Key {
	return sessionkey.Key{ID: id, Password: bytes.Repeat([]byte{byte(id)}, 16), Timeout: 30 * time.Second, Servers: []string{"zk1:2181", "zk2:2181"}}
}

func keys(n int) (ks []sessionkey.Key) {
	for i := range n {
		ks = append(ks, key(-int64(i)-1))
	}
	return ks
}

func TestImage_IsReadAsItWasWritten(t *testing.T) {
	for n := range maxSessions + 1 {
		b := image(head, keys(n))
		require.Len(t, b, size)
		h, sessions, torn, ok := parse(b)
		require.True(t, ok)
		require.Zero(t, torn)
		require.Equal(t, keys(n), sessions)
		require.Equal(t, []string{"zk1:2181", "zk2:2181"}, h.servers)
		require.Equal(t, head.file, h.file)
		require.Equal(t, head.owner, h.owner)
		require.Empty(t, h.mismatch(head))
	}
	_, sessions, _, _ := parse(image(head, keys(maxSessions+2)))
	require.Equal(t, keys(maxSessions + 2)[2:], sessions, "the newest remain")
	h, _, _, ok := parse(image(header{}, nil))
	require.True(t, ok)
	require.Zero(t, h.owner)
}

// A long list of servers leaves room for all sessions.
func TestImage_ManyServers(t *testing.T) {
	many := head
	for i := range 500 {
		many.servers = append(many.servers, fmt.Sprintf("zookeeper-%d.example:2181", i))
	}
	b := image(many, keys(maxSessions))
	require.Len(t, b, size)
	h, sessions, _, _ := parse(b)
	require.Len(t, sessions, maxSessions)
	require.NotEmpty(t, h.servers)
	require.Subset(t, many.servers, h.servers)
}

// A file that is damaged in any one byte, or cut at any length, shows no session that was not
// written to it.
func TestParse_DamagedFile(t *testing.T) {
	b := image(head, keys(3))
	text := len(bytes.TrimRight(b, "\n"))
	for i := range text + 2 {
		damaged := bytes.Clone(b)
		damaged[i] ^= 1
		h, sessions, torn, ok := parse(damaged)
		require.Subset(t, keys(3), append(sessions, key(-1)), "byte %d", i)
		if i < text {
			require.True(t, torn > 0 || !ok || h.mismatch(head) != "", "byte %d: the damage is not reported", i)
		}
		_, sessions, _, _ = parse(b[:i])
		require.Subset(t, keys(3), append(sessions, key(-1)), "cut at %d", i)
	}
	_, sessions, torn, _ := parse([]byte(strings.Replace(string(b), "30000", "40000", 1)))
	require.Equal(t, keys(3)[1:], sessions)
	require.Equal(t, 1, torn)
}

// A line counts only under the header with which it was written.
func TestParse_LineOfAnotherHeader(t *testing.T) {
	other := head
	other.boot = "another"
	b := strings.Replace(string(image(other, keys(1))), "another", head.boot, 1)
	_, sessions, torn, ok := parse([]byte(b))
	require.True(t, ok)
	require.Empty(t, sessions)
	require.Equal(t, 1, torn)
}

func TestMismatch(t *testing.T) {
	for want, change := range map[string]func(was, now *header){
		"":           func(was, now *header) { now.servers = []string{"zk0:2181", "zk2:2181"} },
		"no boot id": func(was, now *header) { was.boot, now.boot = "", "" },
		"started":    func(was, now *header) { now.boot = "another" },
		"a copy":     func(was, now *header) { now.file.inode++ },
		"is a copy":  func(was, now *header) { now.file.device++ },
		"servers":    func(was, now *header) { now.servers = []string{"zk1:2182"} },
	} {
		was, now := head, head
		change(&was, &now)
		require.Contains(t, was.mismatch(now), want)
		require.Equal(t, want == "", was.mismatch(now) == "")
	}
}
