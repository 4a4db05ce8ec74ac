package zklock

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/tap"
	"github.com/zklock/zklock/internal/wire"
)

// laterOn keeps what is to run on a goroutine, for the test to run.
type laterOn struct {
	answering
	run []func()
}

func (c *laterOn) spawn(f func()) bool { c.run = append(c.run, f); return true }
func (c *laterOn) nudge()              {}

// checked are holds that the heartbeat looks after.
type checked struct{ nodes, lost []string }

func (c *checked) heldNodes() []string               { return c.nodes }
func (c *checked) holds(string) bool                 { return false }
func (c *checked) loseNode(node string, cause error) { c.lost = append(c.lost, node) }

// I5: something is held from just after the loop has looked whether anything is. It wished for a beat, whose wish this beat takes
// back: so this beat must check it.
func TestBeat_HeldSinceTheLook_IsChecked(t *testing.T) {
	w := newEventTest(t)
	gone := tap.Answer{Fate: tap.WasAnswered, Conn: waitersConn, Body: multiBody(wire.MultiResult{Op: wire.OpError, Err: wire.NoNode})}
	c := &laterOn{answering: answering{w.e.zkSession.carrier, []tap.Answer{gone}}}
	w.e.zkSession.carrier = c
	holds := &checked{}
	b := &beats{z: w.e.zkSession, holds: holds}
	require.True(t, b.beat(waitersConn))
	require.False(t, b.beat(waitersConn), "one at a time on a connection")
	holds.nodes = []string{"/locks/a/own"}
	require.Len(t, c.run, 1)
	c.run[0]()
	require.Equal(t, holds.nodes, holds.lost, "the beat's answer is about what is held")
	b.hurry(true)
	require.True(t, b.beatNow(waitersConn))
	require.False(t, b.beatNow(0), "there is no connection")
	require.True(t, b.beat(waitersConn))
	require.False(t, b.beatNow(waitersConn))
}
