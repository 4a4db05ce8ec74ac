package zkserver_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/zkserver"
	"github.com/zklock/zklock/zktest"
)

// F17: a server accepts but does not respond, and recovers a while later. go-zookeeper's client
// reconnects soon with the dialer, and after 6.7 session timeouts without it.
func TestImpatient(t *testing.T) {
	for name, c := range map[string]struct {
		dialer func(zk.Dialer) zk.Dialer
		least  time.Duration
		most   time.Duration
	}{
		"impatient": {zkserver.Impatient, 5 * time.Second, 10 * time.Second},
		"as it is":  {func(d zk.Dialer) zk.Dialer { return d }, 195 * time.Second, 205 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := zktest.NewNetwork()
				srv := zktest.Start(t, zktest.WithNetwork(n))
				silent := srv.Inject(zktest.Before(zktest.Connect).Hold().Once())
				start := time.Now()
				conn, _, err := zk.Connect([]string{srv.Addr()}, 30*time.Second, zk.WithLogger(quiet{}), zk.WithDialer(c.dialer(n.Dial)))
				require.NoError(t, err)
				defer conn.Close()
				require.NoError(t, silent.Wait(t.Context()))
				for conn.State() != zk.StateHasSession {
					time.Sleep(100 * time.Millisecond) // virtual
				}
				require.GreaterOrEqual(t, time.Since(start), c.least)
				require.LessOrEqual(t, time.Since(start), c.most)
				silent.Release()
			})
		})
	}
}
