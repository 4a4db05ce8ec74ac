package zklockkrb5

// This test puts Curator into one queue with us, on a server that requires Kerberos.

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/zkserver"
)

const (
	contenders = 3 // of each
	rounds     = 20
)

// compiled returns the class path of the programs that call Curator's recipes.
func compiled(t *testing.T) string {
	t.Helper()
	jars, err := zkserver.ClassPath("curator-recipes", "curator-framework", "curator-client")
	if _, noJavac := exec.LookPath("javac"); (err != nil || noJavac != nil) && !zkserver.Required() {
		t.Skip("no Curator, or no javac: ", err, noJavac)
	}
	require.NoError(t, err)
	dir := t.TempDir()
	classPath := strings.Join(append([]string{dir}, jars...), ":")
	programs := filepath.Join("..", "..", "internal", "conformance", "curator")
	out, err := exec.Command("javac", "-cp", classPath, "-sourcepath", programs, "-d", dir, filepath.Join(programs, "Contend.java")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return classPath
}

// F36, I1: never two in at a time, and each in the order of the queue.
func TestReal_CuratorInOneQueue(t *testing.T) {
	t.Parallel()
	k, srv := sharedKDC(t), sharedServer(t)
	classPath := compiled(t)
	admin, err := connect(t, patience, srv.Addr(), k.keytabOf(t, "locker"))
	require.NoError(t, err)
	for _, node := range []string{"/curator", "/curator-log"} {
		_, err = admin.Conn().Create(node, nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	jaas := write(t, `Client { com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="`+k.path("zklock")+
		`" principal="zklock/host.test@`+realm+`"; };`)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	// No client is in until all are in the queue.
	first, err := admin.Conn().Create("/curator/_c_00000000-0000-4000-8000-000000000000-lock-", nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	failed := make(chan error, contenders+1)
	var all sync.WaitGroup
	all.Go(func() {
		java := exec.CommandContext(ctx, "java", "-Djava.security.krb5.conf="+k.conf(), "-Djava.security.auth.login.config="+jaas, "-XX:TieredStopAtLevel=1",
			"-cp", classPath, "Contend", srv.Addr(), "/curator", "/curator-busy", "/curator-log", fmt.Sprint(contenders), fmt.Sprint(rounds))
		if out, err := java.CombinedOutput(); err != nil {
			failed <- fmt.Errorf("%w: %s", err, out)
		}
	})
	for range contenders {
		s, err := connect(t, patience, srv.Addr(), k.keytabOf(t, "locker"), zklock.WithSessionTimeout(30*time.Second))
		require.NoError(t, err)
		all.Go(func() {
			if err := contend(ctx, s); err != nil {
				failed <- err
			}
		})
	}
	for waiting := 0; waiting < 2*contenders+1 && len(failed) == 0; time.Sleep(10 * time.Millisecond) {
		queue, _, err := admin.Conn().Children("/curator")
		require.NoError(t, err)
		waiting = len(queue)
	}
	require.NoError(t, admin.Conn().Delete(first, -1))
	all.Wait()
	close(failed)
	for err := range failed {
		require.NoError(t, err)
	}
	requireInTurn(t, admin.Conn())
}

// contend takes the lock, creates a node that must not exist, and records its number in the queue.
func contend(ctx context.Context, s *zklock.Session) error {
	m, err := zklock.NewMutex(s, "/curator")
	if err != nil {
		return err
	}
	for range rounds {
		err := m.Do(ctx, func(_ context.Context, hold *zklock.Hold) error {
			acl := zk.WorldACL(zk.PermAll)
			if _, err := s.Conn().Create("/curator-busy", nil, zk.FlagEphemeral, acl); err != nil {
				return fmt.Errorf("we are in, and: %w", err)
			}
			number := hold.Node()[len(hold.Node())-10:]
			if _, err := s.Conn().Create("/curator-log/"+number+"-zklock-", nil, zk.FlagSequence, acl); err != nil {
				return err
			}
			return s.Conn().Delete("/curator-busy", -1)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// requireInTurn checks that the log has the numbers of the queue in their order.
func requireInTurn(t *testing.T, c *zk.Conn) {
	t.Helper()
	log, _, err := c.Children("/curator-log")
	require.NoError(t, err)
	require.Len(t, log, 2*contenders*rounds)
	byPlace := map[string]string{}
	count := map[string]int{}
	for _, line := range log {
		byPlace[line[len(line)-10:]] = line[:10]
		count[strings.Split(line, "-")[1]]++
	}
	require.Equal(t, map[string]int{"curator": contenders * rounds, "zklock": contenders * rounds}, count)
	last := ""
	for i := range len(log) {
		number := byPlace[fmt.Sprintf("%010d", i)]
		require.Less(t, last, number)
		last = number
	}
}
