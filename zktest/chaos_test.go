package zktest

import (
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/wire"
	"github.com/zklock/zklock/internal/zkserver"
)

var chaosSeeds = flag.Uint64("chaos.seeds", 6, "how many worlds TestEnsemble_Chaos runs")

// TestEnsemble_Chaos_MembersAgreeAndNoAnswerIsALie lets members lag, be cut off, stop, start and
// elect, and sessions be lost, under clients that create and delete. Afterwards all members have
// the same nodes. Every change with a successful reply is in the history exactly once, and every
// change without a reply at most once. On a connection, no reply or event has a lower zxid than one
// before it.
func TestEnsemble_Chaos_MembersAgreeAndNoAnswerIsALie(t *testing.T) {
	for seed := range *chaosSeeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { chaos(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func chaos(t *testing.T, rng *rand.Rand) {
	n := NewNetwork()
	e := StartEnsemble(t, 3+2*rng.IntN(2), WithNetwork(n), WithConfig("tickTime=1000", "syncLimit=3"))
	require.NoError(t, e.Load(map[string]string{"/c": "", "/w": ""}))

	busy := rand.New(rand.NewPCG(rng.Uint64(), 3))
	e.OnFrame(func(f Frame) { // so several transactions are due at once
		if !f.Reply && f.Event == 0 && busy.IntN(8) == 0 {
			time.Sleep(time.Duration(busy.IntN(500)) * time.Millisecond)
		}
	})

	type result struct {
		path string
		err  error
	}
	const clients = 4
	results := make([][]result, clients)
	stop := make(chan struct{})
	done := make(chan struct{}, clients)
	for i := range clients {
		conn, _, err := zk.Connect(e.Addrs(), 6*time.Second, zk.WithDialer(zkserver.LastZxids(risingZxids(t, n.Dial))), zk.WithLogger(log.New(io.Discard, "", 0)))
		require.NoError(t, err)
		t.Cleanup(conn.Close)
		pause := rand.New(rand.NewPCG(rng.Uint64(), 2))
		go func() {
			defer func() { done <- struct{}{} }()
			for k := 0; ; k++ {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(1+pause.IntN(400)) * time.Millisecond):
				}
				if i == 0 {
					conn.Set("/w", nil, -1) // the others get the event among their replies
				} else {
					conn.GetW("/w")
				}
				path := fmt.Sprintf("/c/%d-%d", i, k)
				flags := int32(0)
				if pause.IntN(2) == 0 {
					flags = zk.FlagEphemeral
				}
				_, err := conn.Create(path, nil, flags, zk.WorldACL(zk.PermAll))
				results[i] = append(results[i], result{path, err})
				if err == nil && pause.IntN(3) == 0 {
					conn.Delete(path, -1)
				}
			}
		}()
	}

	for range 40 {
		time.Sleep(time.Duration(rng.IntN(4000)) * time.Millisecond)
		m := e.Member(1 + rng.IntN(len(e.Members())))
		switch rng.IntN(8) {
		case 0:
			m.Isolate()
		case 1, 2:
			e.Heal()
		case 3:
			m.Stop()
		case 4:
			require.NoError(t, m.Start())
		case 5:
			m.SetLag(time.Duration(rng.IntN(3)) * time.Second)
		case 6:
			e.Elect()
		case 7:
			if all := e.Sessions(); len(all) > 0 {
				id := all[rng.IntN(len(all))].ID
				if rng.IntN(2) == 0 {
					e.DropConnection(id)
				} else {
					e.ExpireSession(id)
				}
			}
		}
	}
	e.Heal()
	for _, m := range e.Members() {
		require.NoError(t, m.Start())
		m.SetLag(0)
	}
	close(stop)
	for range clients {
		<-done
	}
	time.Sleep(time.Minute)
	synctest.Wait()

	require.NotNil(t, e.Leader())
	for _, m := range e.Members() {
		require.Contains(t, []string{"leader", "follower"}, m.Role())
		e.c.call(func() { // on the ensemble's goroutine, which require would end
			assert.Equal(t, e.c.zxid, m.ep.zxid)
			assert.Equal(t, e.c.tree.nodes, m.ep.tree.nodes)
			assert.Equal(t, owned(e.c.tree), owned(m.ep.tree))
			assert.Empty(t, m.ep.replica.parked)
			assert.Empty(t, m.ep.replica.waiters)
		})
	}
	e.c.call(func() {
		for owner := range e.c.tree.ephemerals {
			assert.Contains(t, e.c.sessions, owner, "the owner of an ephemeral node is alive")
		}
	})
	created := make(map[string]int)
	last := int64(0)
	for _, h := range e.History() {
		require.GreaterOrEqual(t, h.Zxid, last)
		last = h.Zxid
		if h.Kind == Created {
			created[h.Path]++
		}
	}
	answered, unanswered := 0, 0
	for _, all := range results {
		for _, r := range all {
			switch r.err {
			case nil:
				answered++
				require.Equal(t, 1, created[r.path], "%s was answered with success", r.path)
			case zk.ErrNodeExists:
				require.Fail(t, "a path of one's own exists", r.path)
			default:
				unanswered++
				require.LessOrEqual(t, created[r.path], 1, "%s was answered with %v", r.path, r.err)
			}
		}
	}
	require.Greater(t, answered, 20)
	t.Logf("%d members, zxid %#x, %d creates answered, %d not", len(e.Members()), e.Zxid(), answered, unanswered)
}

// risingZxids checks that the zxids on each connection never fall.
func risingZxids(t *testing.T, dial zk.Dialer) zk.Dialer {
	return func(network, addr string, timeout time.Duration) (net.Conn, error) {
		nc, err := dial(network, addr, timeout)
		if err != nil {
			return nil, err
		}
		return &zxidChecker{Conn: nc, t: t}, nil
	}
}

type zxidChecker struct {
	net.Conn
	t        *testing.T
	in       wire.Stream
	welcomed bool // the connect response, which has no zxid, is read
	last     wire.ReplyHeader
}

func (c *zxidChecker) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.in.Add(p[:n])
	for {
		frame, _ := c.in.Next()
		if frame == nil {
			return n, err
		}
		var h wire.ReplyHeader
		if h.Decode(wire.NewDecoder(frame[4:])); c.welcomed && h.Zxid > 0 { // without a transaction: an event of setWatches, an unknown request
			assert.GreaterOrEqual(c.t, h.Zxid, c.last.Zxid, "xid %d after xid %d", h.Xid, c.last.Xid)
			c.last = h
		}
		c.welcomed = true
	}
}

// owned returns the ephemeral nodes of each session that has some. A tree that is made from a
// snapshot has no entry for a session whose nodes were all deleted.
func owned(t *tree) map[int64]map[string]struct{} {
	all := maps.Clone(t.ephemerals)
	maps.DeleteFunc(all, func(_ int64, nodes map[string]struct{}) bool { return len(nodes) == 0 })
	return all
}
