//go:build linux || darwin

package command

// Taking one lock node away: that one and no other, and nothing that is no lock node.

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/zkserver"
)

func deleteBy(t *testing.T, srv *zkserver.Server, args ...string) *proc {
	t.Helper()
	return start(t, nil, append([]string{"delete", "--servers", srv.ConnectString()}, args...)...)
}

func TestDelete_TakesOneNodeAway_AndReportsWhoseItWas(t *testing.T) {
	t.Parallel()
	srv, path := server(t), lockPath(t)
	s := session(t, srv)
	hold, _ := occupy(t, s, path)
	other, _ := occupy(t, s, path+"/other")
	next := run(t, srv, path, "--", "echo", "next")
	next.prints("waiting")
	whose := fmt.Sprintf(`\S+, pid %d, session %#x`, os.Getpid(), s.Stats().SessionID)

	d := deleteBy(t, srv, path, shortName(hold.Node()))
	require.Equal(t, exitUsage, d.wait())
	require.Regexp(t, fmt.Sprintf(`^zklock: %s: with this node %s holds the lock, token %d: .*; nothing was done. Give --yes to confirm\n$`, hold.Node(), whose, hold.Token()), d.stderr.String())
	require.NoError(t, hold.Err())
	require.Empty(t, next.stdout.String())

	d = deleteBy(t, srv, "--yes", path, shortName(hold.Node()))
	require.Equal(t, 0, d.wait(), d.stderr.String())
	require.Regexp(t, fmt.Sprintf(`^%s was deleted: with it %s held the lock, token %d\n$`, hold.Node(), whose, hold.Token()), d.stdout.String())
	<-hold.Lost()
	require.ErrorContains(t, hold.Err(), "another client deleted the lock node")
	require.Equal(t, 0, next.wait())
	require.NoError(t, other.Err(), "the session's other lock stands")

	d = deleteBy(t, srv, "--yes", path, hold.Node())
	require.Equal(t, exitNoNode, d.wait())
	require.Equal(t, "zklock: "+path+": there is no lock node "+hold.Node()+"\n", d.stderr.String())
}

// A candidate that waits queues again; a lease of a semaphore is a lock node, too, further down;
// and so is what no session owns.
func TestDelete_OfEachKind(t *testing.T) {
	t.Parallel()
	srv, path := server(t), lockPath(t)
	s := session(t, srv)
	_, release := occupy(t, s, path+"/m")
	waiter := run(t, srv, path+"/m", "--", "true")
	waiter.prints("waiting")
	ps := participants(t, s, path+"/m")
	d := deleteBy(t, srv, "--yes", path+"/m", ps[1].Node)
	require.Equal(t, 0, d.wait(), d.stderr.String())
	require.Contains(t, d.stdout.String(), " waited for the lock, ")
	release()
	require.Equal(t, 0, waiter.wait())

	sem, err := zklock.NewSemaphore(s, path+"/s", 2)
	require.NoError(t, err)
	hold, err := sem.Acquire(t.Context(), 1)
	require.NoError(t, err)
	d = deleteBy(t, srv, "--yes", path+"/s", shortName(hold.Node()))
	require.Equal(t, 0, d.wait(), d.stderr.String())
	<-hold.Lost()

	forever, err := s.Conn().Create(path+"/m/lock-", nil, zk.FlagSequence, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	d = deleteBy(t, srv, "--yes", path+"/m", shortName(forever))
	require.Equal(t, 0, d.wait(), d.stderr.String())
	require.Contains(t, d.stdout.String(), "with it an unknown client held the lock")
}

func TestDelete_RefusesWhatIsNoLockNode(t *testing.T) {
	t.Parallel()
	srv, path := server(t), lockPath(t)
	s := session(t, srv)
	hold, _ := occupy(t, s, path)
	for _, node := range []string{path + "/config", path + "/item-0000000001", path + "/lock-0000000007", path + "/lock-0000000007/below", path + "/lock-7"} {
		_, err := s.Conn().Create(node, []byte("data"), 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	del := func(servers string, args ...string) (code int, out, said string) {
		var stdout, stderr bytes.Buffer
		code = execute(append([]string{"delete", "--yes", "--servers", servers, "--connect-timeout", "20s"}, args...), &stdout, &stderr)
		return code, stdout.String(), stderr.String()
	}
	at := srv.ConnectString()
	for _, tt := range []struct {
		path, node string
		code       int
	}{
		{path, path, exitUsage}, {path, "config", exitUsage}, {path, "item-0000000001", exitUsage}, {path, "lock-0000000007", exitUsage}, {path, "lock-7", exitUsage},
		{"/zookeeper/quota", "lock-0000000001", exitUsage}, {path, "lock-0000000099", exitNoNode}, {path + "/none", shortName(hold.Node()), exitNoNode},
	} {
		code, out, said := del(at, tt.path, tt.node)
		require.Equal(t, tt.code, code, "%s %s", tt.node, said)
		require.Regexp(t, `: nothing was done|/zookeeper|there is no lock node`, said)
		require.Empty(t, out)
	}
	code, _, said := del(at, hold.Node())
	require.Equal(t, exitUsage, code)
	require.Contains(t, said, "1 arguments instead of two: give the PATH of a lock and a NODE")
	require.NoError(t, hold.Err())
	require.Len(t, childrenAt(t, s, path), 5)

	folder, name := path[:strings.LastIndex(path, "/")], path[strings.LastIndex(path, "/"):]
	code, _, said = del(at+folder, name, hold.Node()) // below a chroot, as $ZKLOCK_NODE has it
	require.Equal(t, 0, code, said)
	code, _, _ = del("127.0.0.1:1", "--connect-timeout", "500ms", path, hold.Node())
	require.Equal(t, exitNoServer, code)
}

// Who may not delete is told which permission is missing.
func TestDelete_NoPermission_IsRefused(t *testing.T) {
	t.Parallel()
	srv, path := server(t), lockPath(t)
	s := session(t, srv, zklock.WithDigest("boss", "secret"))
	hold, _ := occupy(t, s, path)
	acl := append(zk.WorldACL(zk.PermRead), zk.DigestACL(zk.PermAll, "boss", "secret")...)
	_, err := s.Conn().SetACL(path, acl, -1)
	require.NoError(t, err)
	d := deleteBy(t, srv, "--yes", path, hold.Node())
	require.Equal(t, exitRefused, d.wait())
	require.Contains(t, d.stderr.String(), "no DELETE permission on the node above")
	require.NoError(t, hold.Err())
}
