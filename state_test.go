package zklock

// These tests attack state.go: a Session's state and what happened in, the next state out.

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/wire"
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

		{Lost, attached, other}: Connected, // R41: after a loss it goes on, in a new session only
		{Lost, attached, same}:  Connected, // which has the id of the old one: what is over is never attached again
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

// R40: however often a loss is noticed, it is told once for each ZooKeeper session, and is final for it.
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
				session++ // the Session refuses to attach to one that it gave up
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

// What the client's errors say about a request that changes something. A doubt is "unknown": an orphan costs more
// than a second look (R2, R23).
func TestOutcomeOf(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want outcome
	}{
		{nil, applied},

		{zk.ErrNoNode, turnedDown},
		{zk.ErrNoAuth, turnedDown},
		{zk.ErrBadVersion, turnedDown},
		{zk.ErrNodeExists, turnedDown},
		{zk.ErrNotEmpty, turnedDown},
		{zk.ErrInvalidACL, turnedDown},
		{zk.ErrBadArguments, turnedDown},
		{zk.ErrNoChildrenForEphemerals, turnedDown},
		{zk.ErrAuthFailed, turnedDown},
		{wire.RuntimeInconsistency, turnedDown},
		{wire.Unimplemented, turnedDown}, // F28
		{wire.QuotaExceeded, turnedDown}, // F28
		{wire.Throttled, notNow},         // F28
		{fmt.Errorf("making the root: %w", zk.ErrNoAuth), turnedDown},

		{zk.ErrConnectionClosed, unknown},
		{zk.ErrSessionExpired, unknown}, // the dead session's nodes may be seen for a while
		{zk.ErrSessionMoved, unknown},
		{wire.ErrMalformed, unknown}, // an answer that did not decode
		{zk.ErrAPIError, unknown},
		{wire.OperationTimeout, unknown},
		{wire.Code(-122), unknown}, // request timeout
	} {
		require.Equal(t, tt.want, outcomeOf(tt.err), "%v", tt.err)
	}
}

// errors.Is sees through Error to the sentinel, to the reason, and to the client's error.
func TestError(t *testing.T) {
	err := error(&Error{Op: "release", Path: "/locks/a", Node: "/locks/a/n", Err: lostBecause(errExpired)})
	require.ErrorIs(t, err, ErrLost)
	require.ErrorIs(t, err, errExpired)
	require.EqualError(t, err, "zklock: release /locks/a (node /locks/a/n): lock lost: the servers ended the ZooKeeper session")
	require.Same(t, errors.Unwrap(err), lostBecause(errors.Unwrap(err)), "a loss is not wrapped twice")

	err = &Error{Op: "acquire", Path: "/locks/a", Err: zk.ErrNoAuth}
	require.ErrorIs(t, err, zk.ErrNoAuth)
	require.EqualError(t, err, "zklock: acquire /locks/a: zk: not authenticated")

	require.ErrorIs(t, errReleased, ErrNotHeld)
	require.ErrorIs(t, errConnClosed, ErrClosed)
}
