package command

// These tests attack parties.go, which decides who stands where in a queue that is watched, and what changed.

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/queue"
)

// pictureOf has nodes "NAME SESSION TOKEN", those that end in lease- and a number below leases.
func pictureOf(t *testing.T, isSemaphore bool, nodes ...string) *picture {
	t.Helper()
	v := &picture{root: "/l", isSemaphore: isSemaphore, nodes: map[string]zklock.Participant{}}
	for _, node := range nodes {
		var p zklock.Participant
		var name string
		_, err := fmt.Sscan(node, &name, &p.SessionID, &p.Token)
		require.NoError(t, err)
		p.Node, p.Data = v.root+"/"+name, []byte(name)
		if !isSemaphore {
			v.queued = append(v.queued, name)
		} else if strings.Contains(name, queue.LeaseName) {
			v.leases, p.Node = append(v.leases, name), v.root+"/leases/"+name
		} else {
			v.queued, p.Node = append(v.queued, name), v.root+"/locks/"+name
		}
		v.nodes[p.Node] = p
	}
	return v
}

func spelled(parties []party) (all string) {
	for _, s := range parties {
		if s.holds {
			all += " holds"
		} else {
			all += fmt.Sprintf(" waits-%d", s.place)
		}
		if s.permits > 1 {
			all += fmt.Sprintf("x%d", s.permits)
		}
	}
	return strings.TrimSpace(all)
}

func TestParties(t *testing.T) {
	const a, b, c = "_c_8b4041d7-3154-4c53-836b-00000000000a-", "_c_8b4041d7-3154-4c53-836b-00000000000b-", "_c_8b4041d7-3154-4c53-836b-00000000000c-"
	two := 2
	for _, tt := range []struct {
		name        string
		isSemaphore bool
		limit       *int
		record      queue.Record
		nodes       []string
		want        string
	}{
		{"nobody", false, nil, "", nil, ""},
		{"mutexes, by their numbers", false, nil, "", []string{b + "lock-0000000002 2 2", a + "lock-0000000001 1 1"}, "holds waits-2"},
		{"latches see each other alone", false, nil, "", []string{"lock-0000000001 1 1", "latch-0000000002 1 2", "latch-0000000003 1 3"}, "holds holds waits-2"},
		{"the record names who is in front", false, nil, "held=lock-0000000001", []string{"lock-0000000001 1 1"}, "holds"},
		{"it names one that is gone", false, nil, "held=lock-0000000000", []string{"lock-0000000001 1 1", "lock-0000000002 1 1"}, "waits-1 waits-2"},
		{"it names one of another kind", false, nil, "held=lock-0000000001", []string{"lock-0000000001 1 1", "latch-0000000002 1 2"}, "holds holds"},
		{"two calls with a permit, and one that waits", true, &two, "", []string{a + "lease-0000000001 1 1", b + "lease-0000000002 2 2", c + "lock-0000000003 3 3"}, "holds holds waits-1"},
		{"two permits of one call are one party", true, &two, "", []string{a + "lease-0000000001 1 1", a + "lease-0000000002 1 1"}, "holdsx2"},
		{"granted, and about to leave the queue", true, &two, "", []string{a + "lease-0000000001 1 2", a + "lock-0000000001 1 1"}, "holds"},
		{"the front waits with leases, and has one party", true, &two, "", []string{a + "lease-0000000001 1 1", b + "lease-0000000002 2 5", b + "lease-0000000003 2 5", b + "lock-0000000003 2 3", c + "lock-0000000004 3 4"}, "holds waits-1x2 waits-2"},
		{"other clients' leases have no id", true, nil, "", []string{"lease-0000000001 1 1", "lease-0000000002 1 2"}, "holds holds"},
	} {
		v := pictureOf(t, tt.isSemaphore, tt.nodes...)
		v.limit, v.record = tt.limit, tt.record
		require.Equal(t, tt.want, spelled(v.parties()), tt.name)
	}
}

// A node that was listed and not read, because it had gone, has no party.
func TestParties_NodeThatIsNotKnown(t *testing.T) {
	v := pictureOf(t, false, "lock-0000000001 1 1", "lock-0000000002 1 2")
	delete(v.nodes, "/l/lock-0000000001")
	require.Equal(t, "holds", spelled(v.parties()))
}

// Who went comes first, so that never two mutexes are said to hold.
func TestProgress_GoneBeforeHolds(t *testing.T) {
	now := time.Now()
	pr := progress{path: "/l"}
	next := func(v *picture) (whats []string) {
		now = now.Add(time.Second)
		for _, c := range pr.next(v, now) {
			whats = append(whats, strings.TrimPrefix(c.line(false), now.Local().Format(time.TimeOnly)+" /l "))
		}
		return whats
	}
	require.Equal(t, []string{"holds: lock-0000000001 (lock-0000000001)", "waits, 2: lock-0000000002 (lock-0000000002)"},
		next(pictureOf(t, false, "lock-0000000001 1 1", "lock-0000000002 1 2")))
	require.Empty(t, next(pictureOf(t, false, "lock-0000000001 1 1", "lock-0000000002 1 2")))
	require.Equal(t, []string{"gone, held 2s or longer: lock-0000000001 (lock-0000000001)", "holds: lock-0000000002 (lock-0000000002)", "waits, 2: lock-0000000003 (lock-0000000003)"},
		next(pictureOf(t, false, "lock-0000000002 1 2", "lock-0000000003 1 3")))
	require.Equal(t, []string{"gone, held 1s: lock-0000000002 (lock-0000000002)", "gone, waited 1s: lock-0000000003 (lock-0000000003)"}, next(pictureOf(t, false)))
}
