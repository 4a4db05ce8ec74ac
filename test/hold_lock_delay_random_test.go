package zklock_test

// This test injects random faults into clients of one lock with a lock-delay, and checks the
// server's history.

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// F47, I1, I4, I6: responses are lost, connections and sessions end, nodes are deleted, callers
// give up, another word is written. No client is granted for d after a holder disappeared, releases
// delay no client, and no node is left after the faults.
func TestVirtual_LockDelay_RandomFaults(t *testing.T) {
	randomWorlds(t, 0, 6, func(t *testing.T, v *virtual, r *random) {
		v.net.SetLatency(3 * time.Millisecond)
		const d = 3 * time.Second
		var sessions []*zklock.Session
		var all sync.WaitGroup
		over := make(chan struct{})
		for range 3 {
			s := v.connect()
			sessions = append(sessions, s)
			m := newMutex(t, s, "/job", zklock.WithLockDelay(d))
			for range 2 {
				all.Go(func() {
					for !isOver(over) {
						ctx, cancel := context.WithTimeout(context.Background(), time.Second+r.atPace(20*time.Second))
						h, err := m.Acquire(ctx)
						cancel()
						if err != nil {
							time.Sleep(100 * time.Millisecond)
							continue
						}
						time.Sleep(r.atPace(2 * time.Second))
						_ = h.Release(context.Background())
					}
				})
			}
		}
		for range 100 {
			time.Sleep(r.atPace(4 * time.Second))
			s := sessions[r.intN(len(sessions))]
			switch r.intN(6) {
			case 0:
				r.strikes()
				v.srv.ExpireSession(s.SessionID())
			case 1:
				r.strikes()
				v.srv.DropConnection(s.SessionID())
			case 2:
				for node := range strings.FieldsSeq(v.record()) { // the holder's, if there is one
					r.strikes()
					_ = v.srv.Delete("/job/" + strings.TrimPrefix(node, "held="))
				}
			case 3:
				r.injects(v.srv, zktest.After(zktest.Multi).Path("/job").DropReply().Close().Once().Optional())
			case 4:
				r.injects(v.srv, zktest.Before(zktest.Multi).Path("/job").Close().Once().Optional())
			case 5:
				if data, stat, err := s.Conn().Get("/job"); err == nil {
					_, _ = s.Conn().Set("/job", []byte(withWord(string(data), fmt.Sprint("n=", r.intN(1000)))), stat.Version)
				}
			}
		}
		close(over)
		all.Wait()
		time.Sleep(time.Minute)
		for _, s := range sessions {
			h, err := newMutex(t, s, "/job", zklock.WithLockDelay(d)).Acquire(within(t, time.Minute))
			require.NoError(t, err)
			release(t, h)
		}
		require.Empty(t, v.srv.Children("/job"), "I4")
		require.NotContains(t, v.record(), "held=")
		require.NotContains(t, v.record(), "until=")
		grants, delays, atOnce := delaysIn(t, v.srv.History(), d)
		t.Logf("%d grants, %d after a holder disappeared, %d within a second after a release", grants, delays, atOnce)
		require.Greater(t, grants, 50)
		require.Positive(t, delays)
		require.Greater(t, atOnce, 20)
	})
}

// withWord sets a word of data, and keeps all other words.
func withWord(data, word string) string {
	name, _, _ := strings.Cut(word, "=")
	words := []string{word}
	for _, w := range strings.Fields(data) {
		if !strings.HasPrefix(w, name+"=") {
			words = append(words, w)
		}
	}
	return strings.Join(words, " ")
}

// delaysIn reads the history below /job, and checks each grant that was recorded.
func delaysIn(t *testing.T, history []zktest.Applied, d time.Duration) (grants, delays, atOnce int) {
	alive := map[string]bool{}
	held := ""
	var gone, released time.Time // when the last holder disappeared, or released; one of the two is zero
	for i := 0; i < len(history); {
		zxid, at := history[i].Zxid, history[i].Time
		deleted, now, isSet := "", held, false
		for ; i < len(history) && history[i].Zxid == zxid; i++ {
			a := history[i]
			switch name := strings.TrimPrefix(a.Path, "/job/"); {
			case a.Kind == zktest.DataSet && a.Path == "/job":
				now, isSet = "", true
				for _, word := range strings.Fields(string(a.Data)) {
					if node, ok := strings.CutPrefix(word, "held="); ok {
						now = node
					}
				}
			case a.Kind == zktest.Created && name != a.Path:
				alive[name] = true
			case a.Kind == zktest.Deleted && name != a.Path:
				delete(alive, name)
				if name == held {
					deleted = name
				}
			}
		}
		switch {
		case held != "" && deleted == held && isSet && now == "":
			gone, released = time.Time{}, at
		case deleted != "":
			require.Equal(t, held, now)
			gone, released = at, time.Time{}
		case now != held && now == "":
			t.Fatalf("zxid %#x: the record of %s goes without its node", zxid, held)
		case now != held:
			grants++
			require.True(t, alive[now], "F47: the record names a node that is not there")
			require.False(t, alive[held], "I1: a grant beside %s", held)
			if !gone.IsZero() {
				delays++
				require.GreaterOrEqual(t, at.Sub(gone), d, "F47: %s is granted too early after %s", now, held)
			}
			if !released.IsZero() && at.Sub(released) < time.Second {
				atOnce++
			}
			gone, released = time.Time{}, time.Time{}
		}
		held = now
	}
	return grants, delays, atOnce
}
