package zktest_test

// A user's own service, and its test for the loss of its session.

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/zktest"
)

// announce keeps an ephemeral node at path while ctx lasts, in whatever session: the loss of a
// session deletes the node.
func announce(ctx context.Context, conn *zk.Conn, path string) {
	for ctx.Err() == nil {
		_, err := conn.Create(path, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		if err == nil || err == zk.ErrNodeExists { // ErrNodeExists: perhaps by a session of ours that is about to end
			if there, _, gone, err := conn.ExistsW(path); err == nil && there {
				select {
				case <-gone: // also when the session is lost
				case <-ctx.Done():
				}
				continue
			}
		}
		time.Sleep(time.Second)
	}
}

func TestAnnounce_SessionLost_IsThereAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := zktest.NewNetwork()
		srv := zktest.Start(t, zktest.WithNetwork(network))
		conn, _, err := zk.Connect([]string{srv.Addr()}, 10*time.Second, zk.WithDialer(network.Dial))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go announce(ctx, conn, "/worker-1")
		time.Sleep(time.Hour) // of virtual time
		first, ok := srv.Stat("/worker-1")
		if !ok {
			t.Fatal("not announced")
		}

		network.Partition(srv.Addr()) // nothing gets through, and nobody is told
		time.Sleep(time.Minute)
		if _, ok := srv.Stat("/worker-1"); ok {
			t.Error("announced by a session that is over")
		}
		network.Heal(srv.Addr())
		time.Sleep(time.Minute)
		if again, ok := srv.Stat("/worker-1"); !ok || again.EphemeralOwner == first.EphemeralOwner {
			t.Error("not announced in a new session")
		}
	})
}
