package link

// These tests attack state.go: a state and what happened in, the next state out.

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every state and every event. A row that is not written here is one that changes nothing.
func TestStateMachine_Next(t *testing.T) {
	const same, other = int64(0x51), int64(0x52)
	type input struct {
		from State
		kind stateEventKind
		id   int64
	}
	changes := map[input]State{
		{Connecting, attached, same}:  Connected, // its session is not known before
		{Connecting, attached, other}: Connected,
		{Connecting, closed, same}:    Closed,
		{Connecting, closed, other}:   Closed,

		{Connected, detached, same}:  Suspended,
		{Connected, detached, other}: Suspended,
		{Connected, attached, other}: Connected, // F37: another session without an expiry
		{Connected, lost, same}:      Lost,
		{Connected, closed, same}:    Closed,
		{Connected, closed, other}:   Closed,

		{Suspended, attached, same}:  Reconnected,
		{Suspended, attached, other}: Connected,
		{Suspended, lost, same}:      Lost,
		{Suspended, closed, same}:    Closed,
		{Suspended, closed, other}:   Closed,

		{Reconnected, detached, same}:  Suspended,
		{Reconnected, detached, other}: Suspended,
		{Reconnected, attached, other}: Connected,
		{Reconnected, lost, same}:      Lost,
		{Reconnected, closed, same}:    Closed,
		{Reconnected, closed, other}:   Closed,

		{Lost, attached, other}: Connected, // R41: after a loss only a new session follows
		{Lost, attached, same}:  Connected, // it has the id of the old one: a session that has ended is never attached again
		{Lost, closed, same}:    Closed,
		{Lost, closed, other}:   Closed,
	}
	seen := 0
	for from := Connecting; from <= Closed; from++ {
		for _, kind := range []stateEventKind{attached, detached, lost, closed} {
			for _, id := range []int64{same, other} {
				name := fmt.Sprintf("%v, %s of session %#x", from, [...]string{"attached", "detached", "lost", "closed"}[kind], id)
				t.Run(name, func(t *testing.T) {
					m := stateMachine{from, same}
					if from == Connecting {
						m.session = 0
					}
					want, changed := changes[input{from, kind, id}]
					got, did := m.next(stateEvent{kind: kind, session: id})
					require.Equal(t, changed, did)
					if !changed {
						require.Equal(t, m, got, "what changes nothing changes nothing")
						return
					}
					seen++
					require.Equal(t, want, got.state)
					switch {
					case kind == attached:
						require.Equal(t, id, got.session)
					default:
						require.Equal(t, m.session, got.session)
					}
				})
			}
		}
	}
	require.Len(t, changes, seen)
}

// R40: however often a loss is noticed, it is reported once for each ZooKeeper session, and is
// final for it.
func TestStateMachine_RandomEvents_LostOncePerSession(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		m, session := stateMachine{}, int64(1)
		told := map[int64]int{}
		over := map[int64]bool{}
		for range 100 {
			if rnd.IntN(10) == 0 {
				session++
			}
			e := stateEvent{kind: stateEventKind(rnd.IntN(3)), session: session}
			if e.kind == attached && over[session] {
				session++ // the Session does not attach to a session that it gave up
				e.session = session
			}
			next, changed := m.next(e)
			if changed && next.state == Lost {
				told[next.session]++
				over[next.session] = true
			}
			if changed && next.state == Reconnected {
				require.Equal(t, Suspended, m.state)
				require.False(t, over[next.session], "Lost is final for a ZooKeeper session")
			}
			require.Equal(t, changed, next != m)
			m = next
		}
		for id, n := range told {
			require.Equal(t, 1, n, "session %d", id)
		}
		m, _ = m.next(stateEvent{kind: closed})
		for _, kind := range []stateEventKind{attached, detached, lost, closed} {
			next, changed := m.next(stateEvent{kind: kind, session: session + 1})
			require.False(t, changed, "Closed is the end")
			require.Equal(t, m, next)
		}
	}
}
