package zktest_test

// Attacks snapshots outside the server: the state that JSON keeps, and the nodes that are read from
// a real server's file.

import (
	"bytes"
	"encoding/json"
	"hash/adler32"
	"os"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	. "github.com/zklock/zklock/zktest"
)

// realSnapshot was written by a ZooKeeper 3.8.0, after clients had created containers, TTL nodes,
// ACLs and an ephemeral node.
func realSnapshot(t *testing.T) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/snapshot.e")
	require.NoError(t, err)
	return b
}

// requireRealNodes asks a client for the nodes of realSnapshot.
func requireRealNodes(t *testing.T, srv *Server) {
	t.Helper()
	conn := connect(t, srv, 10*time.Second)
	children, _, err := conn.Children("/app")
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"empty", "null", "private", "queue-0000000004", "queue-0000000005"}, children)
	data, _, err := conn.Get("/app")
	require.NoError(t, err)
	require.Equal(t, "hello2", string(data))
	data, st, err := conn.Get("/app/empty")
	require.NoError(t, err)
	require.NotNil(t, data)
	require.Zero(t, st.DataLength)
	require.InDelta(t, time.Now().UnixMilli(), st.Mtime, 60_000)
	data, _, err = conn.Get("/app/null")
	require.NoError(t, err)
	require.Nil(t, data)

	acl, _, err := conn.GetACL("/app/private")
	require.NoError(t, err)
	require.Equal(t, []zk.ACL{{Perms: zk.PermAll, Scheme: "digest", ID: "ann:x"}, {Perms: zk.PermRead, Scheme: "ip", ID: "127.0.0.0/8"}}, acl)
	_, err = conn.Set("/app/private", nil, -1)
	require.ErrorIs(t, err, zk.ErrNoAuth)
	require.NoError(t, conn.AddAuth("digest", []byte("ann:secret")))
	data, _, err = conn.Get("/app/private")
	require.NoError(t, err)
	require.Equal(t, "x\x00\xff", string(data))

	require.Equal(t, []string{"n"}, srv.Children("/locks"), "the ephemeral node is left out")
	stat, _ := srv.Stat("/locks")
	require.True(t, stat.Container)
	root, _ := srv.Stat("/")
	require.EqualValues(t, 3, root.Creates)
	require.Contains(t, srv.Dump(), "/ttl czxid=0x1 version=0 creates=0 ttl=3600000ms")
	path, err := conn.Create("/app/queue-", nil, zk.FlagSequence, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	require.Equal(t, "/app/queue-0000000006", path)
}

func TestReadSnapshot_OfARealServer(t *testing.T) {
	s, err := ReadSnapshot(bytes.NewReader(realSnapshot(t)))
	require.NoError(t, err)
	requireRealNodes(t, Start(t, WithSnapshot(s)))
	srv := Start(t)
	srv.Restore(s)
	requireRealNodes(t, srv)
}

func TestSnapshot_JSONKeepsAll(t *testing.T) {
	first, err := ReadSnapshot(bytes.NewReader(realSnapshot(t)))
	require.NoError(t, err)
	srv := Start(t, WithSnapshot(first))
	connect(t, srv, 10*time.Second)
	_, err = srv.CreateAs(srv.Sessions()[0].ID, "/locks/e", nil, Ephemeral)
	require.NoError(t, err)
	text, err := json.Marshal(srv.Snapshot())
	require.NoError(t, err)
	require.NotContains(t, string(text), "/locks/e\"")
	require.NotContains(t, string(text), "/zookeeper/config")
	var second Snapshot
	require.NoError(t, json.Unmarshal(text, &second))
	requireRealNodes(t, Start(t, WithSnapshot(second)))
	e := StartEnsemble(t, 3, WithSnapshot(second))
	require.Equal(t, []string{"n"}, e.Member(1).Children("/locks"))
}

// A file that is truncated or changed anywhere is rejected: ReadSnapshot returns no half of a tree.
func TestReadSnapshot_Damaged(t *testing.T) {
	whole := realSnapshot(t)
	end := bytes.LastIndex(whole, []byte("\x00\x00\x00\x01/\x00\x00\x00\x00\x00\x00\x00\x0e")) + 5 // the digest behind it is not read
	for n := range end {
		_, err := ReadSnapshot(bytes.NewReader(whole[:n]))
		require.ErrorContains(t, err, "zktest: ", "cut off at %d", n)
		for _, bit := range []byte{0x80, 1} {
			changed := bytes.Clone(whole)
			changed[n] ^= bit
			if _, err = ReadSnapshot(bytes.NewReader(changed)); n < 8 || n > 15 { // there is the database's id
				require.Error(t, err, "bit %x of byte %d", bit, n)
			}
		}
	}
	_, err := ReadSnapshot(bytes.NewReader(whole[:end]))
	require.NoError(t, err)
	for says, head := range map[string]string{"gunzip": "\x1f\x8b\x08", ".snappy": "\x82SNAPPY\x00", "no snapshot of ZooKeeper": "ZKLG\x00\x00\x00\x02"} {
		_, err := ReadSnapshot(bytes.NewReader(append([]byte(head), whole...)))
		require.ErrorContains(t, err, says)
	}
	sealed := func(b string) []byte {
		sum := adler32.Checksum([]byte(b))
		return append([]byte(b), 0, 0, 0, 0, byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum), 0, 0, 0, 1, '/')
	}
	head := "ZKSN\x00\x00\x00\x02\xff\xff\xff\xff\xff\xff\xff\xff"
	stat := string(make([]byte, 60))
	node := func(path string, acl byte) string {
		return "\x00\x00\x00" + string(byte(len(path))) + path + "\xff\xff\xff\xff" + string([]byte{acl, acl, acl, acl, acl, acl, acl, acl}) + stat
	}
	for says, body := range map[string]string{
		"the ACL of \"/a\" is missing":   "\x00\x00\x00\x00\x00\x00\x00\x00" + node("/a", 1) + "\x00\x00\x00\x01/",
		"has \"/a/b\" before its parent": "\x00\x00\x00\x00\x00\x00\x00\x00" + node("/a/b", 0xff) + "\x00\x00\x00\x01/",
		"has \"/a\" twice":               "\x00\x00\x00\x00\x00\x00\x00\x00" + node("/a", 0xff) + node("/a", 0xff) + "\x00\x00\x00\x01/",
		"can have the path":              "\x00\x00\x00\x00\x00\x00\x00\x00" + node("/..", 0xff) + "\x00\x00\x00\x01/",
		"not written to its end":         "\x7f\xff\xff\xff",
	} {
		_, err := ReadSnapshot(bytes.NewReader(sealed(head + body)))
		require.ErrorContains(t, err, says)
	}
}

func TestSnapshot_UnmarshalJSON_Refuses(t *testing.T) {
	var s Snapshot
	require.NoError(t, json.Unmarshal([]byte(`[{"path":"/a"},{"path":"/a/b","data":"eA=="}]`), &s), "as a test may write it")
	for says, text := range map[string]string{
		"list of nodes":     `{"path":"/a"}`,
		"before its parent": `[{"path":"/a/b"},{"path":"/a"}]`,
		"twice":             `[{"path":"/a"},{"path":"/a"}]`,
		"the path":          `[{"path":"a"}]`,
		"and not both":      `[{"path":"/a","container":true,"ttl_ms":1}]`,
		"a container or":    `[{"path":"/","container":true}]`,
	} {
		require.ErrorContains(t, json.Unmarshal([]byte(text), &s), says)
	}
	srv := Start(t, WithSnapshot(s))
	data, ok := srv.Get("/a/b")
	require.True(t, ok)
	require.Equal(t, "x", string(data), "an error changes nothing")
	srv.Restore(Snapshot{})
	require.Equal(t, []string{"zookeeper"}, srv.Children("/"))
}

// Whatever the file contains, it is rejected or becomes nodes that a server starts with.
func FuzzReadSnapshot(f *testing.F) {
	whole, err := os.ReadFile("testdata/snapshot.e")
	require.NoError(f, err)
	f.Add(whole[16 : bytes.Index(whole, []byte("\x00\x00\x00\x01/"))+5])
	f.Fuzz(func(t *testing.T, body []byte) {
		file := append(bytes.Clone(whole[:16]), body...)
		sum := adler32.Checksum(file)
		file = append(file, 0, 0, 0, 0, byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum), 0, 0, 0, 1, '/')
		s, err := ReadSnapshot(bytes.NewReader(file))
		if err != nil {
			return
		}
		text, err := json.Marshal(s)
		require.NoError(t, err)
		var again Snapshot
		require.NoError(t, json.Unmarshal(text, &again))
		srv, err := NewServer(WithNetwork(NewNetwork()), WithSnapshot(again))
		require.NoError(t, err)
		srv.Close()
	})
}

// The configuration lists the current members, not the members in a snapshot.
func TestRestore_KeepsTheConfiguration(t *testing.T) {
	s, err := ReadSnapshot(bytes.NewReader(realSnapshot(t)))
	require.NoError(t, err)
	srv := Start(t)
	before := srv.Snapshot()
	require.NoError(t, srv.SetData("/zookeeper/config", []byte("server.1=...")))
	for _, restore := range []func(){func() { srv.Restore(s) }, func() { srv.Restore(before) }, srv.Reset} {
		restore()
		data, ok := srv.Get("/zookeeper/config")
		require.True(t, ok)
		require.Equal(t, "server.1=...", string(data))
	}
}
