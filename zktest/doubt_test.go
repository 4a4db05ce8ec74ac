package zktest_test

// Writes whose outcome is in doubt, because the leader lost its majority before it could reply.

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/rawzk"
	"github.com/zklock/zklock/internal/wire"
	. "github.com/zklock/zklock/zktest"
)

// send sends a request and does not wait for its reply.
func send(t *testing.T, c *rawzk.Conn, op wire.Op, body wire.Record) {
	t.Helper()
	_, err := c.Send(op, body)
	require.NoError(t, err)
}

// inDoubt returns which of three writes at the cut-off leader exist after the election of another.
func inDoubt(t *testing.T, seed uint64, during func(*Ensemble)) (exist string) {
	threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
		var clients []*rawzk.Conn
		for range 3 {
			clients = append(clients, raw(t, n, e.Member(3), time.Hour))
		}
		e.Member(3).Isolate()
		for i, c := range clients {
			send(t, c, wire.OpCreate, wire.CreateRequest{Path: fmt.Sprint("/", i), ACL: world, Flags: wire.FlagEphemeral})
			time.Sleep(time.Millisecond)
		}
		during(e)
		for _, c := range clients {
			_, err := c.Receive()
			require.Error(t, err, "a write in doubt has no reply")
		}
		e.Heal()
		require.NoError(t, e.Member(3).Start())
		time.Sleep(time.Minute)
		for i := range clients {
			st, ok := e.Stat(fmt.Sprint("/", i))
			if !ok {
				continue
			}
			exist += fmt.Sprint(i)
			require.EqualValues(t, 1, st.Czxid>>32, "it was done before the new epoch")
			require.Equal(t, clients[i].Session.SessionID, st.EphemeralOwner)
			for _, m := range e.Members() {
				require.Contains(t, m.Children("/"), fmt.Sprint(i))
			}
		}
	}, WithSeed(seed), WithConfig("maxSessionTimeout=3600000"))
	return exist
}

func TestEnsemble_WriteInDoubt_IsDecidedByTheSeed_InTheOrderOfTheLog(t *testing.T) {
	for what, during := range map[string]func(*Ensemble){
		"another is elected": func(*Ensemble) {},
		"the leader stops":   func(e *Ensemble) { e.Member(3).Stop() },
		"all are alone, and it is back": func(e *Ensemble) {
			e.Partition([]int{1}, []int{2}, []int{3})
			time.Sleep(time.Minute)
			e.Heal()
		},
	} {
		t.Run(what, func(t *testing.T) {
			found := make(map[string]int)
			for seed := range uint64(20) {
				exist := inDoubt(t, seed, during)
				require.Equal(t, exist, inDoubt(t, seed, during), "the same seed")
				found[exist]++
			}
			require.Len(t, found, 4, "%v", found)
			require.Contains(t, found, "")
			require.Contains(t, found, "0")
			require.Contains(t, found, "01")
			require.Contains(t, found, "012")
		})
	}
}

func TestEnsemble_WriteAtAFollowerCutOff_IsNotDone(t *testing.T) {
	for seed := range uint64(10) {
		threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
			c := raw(t, n, e.Member(1), 20*tick)
			e.Member(1).Isolate()
			send(t, c, wire.OpCreate, wire.CreateRequest{Path: "/a", ACL: world})
			time.Sleep(time.Minute)
			e.Heal()
			time.Sleep(time.Minute)
			require.Nil(t, e.Children("/a"))
		}, WithSeed(seed))
	}
}

func TestEnsemble_WriteInDoubt_SessionEndedMeanwhile_IsNotDone(t *testing.T) {
	for seed := range uint64(10) {
		threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
			c := raw(t, n, e.Member(3), 20*tick)
			e.Member(3).Isolate()
			send(t, c, wire.OpCreate, wire.CreateRequest{Path: "/a", ACL: world, Flags: wire.FlagEphemeral})
			time.Sleep(time.Second)
			require.True(t, e.ExpireSession(c.Session.SessionID))
			time.Sleep(time.Minute)
			require.Nil(t, e.Children("/a"))
		}, WithSeed(seed))
	}
}

func TestEnsemble_ClientGoneWhileItsWriteWaits_TheWriteIsDone(t *testing.T) {
	threeMembers(t, func(t *testing.T, n *Network, e *Ensemble) {
		c := raw(t, n, e.Member(1), 20*tick)
		e.Member(1).Isolate()
		send(t, c, wire.OpCreate, wire.CreateRequest{Path: "/a", ACL: world})
		time.Sleep(time.Millisecond)
		require.NoError(t, c.Close())
		time.Sleep(time.Second)
		e.Heal()
		require.NotNil(t, e.Children("/a"))
	})
}
