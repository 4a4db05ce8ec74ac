package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/ledger"
	"github.com/zklock/zklock/zktest"
)

// hold is one that believes until it is told.
type hold struct {
	token int64
	told  bool
	reads bool
}

func (h *hold) Err() error {
	if h.told {
		return errors.New("lost")
	}
	return nil
}
func (h *hold) Token() int64 { return h.token }
func (h *hold) Node() string {
	if h.reads {
		return fmt.Sprintf("/job/__READ__%010d", h.token)
	}
	return fmt.Sprintf("/job/%d", h.token)
}
func (h *hold) Deadline() time.Time { return time.Now().Add(time.Second) }

// A checker earns its place by what it catches.
func TestLedger(t *testing.T) {
	const overlap, smaller = "I5: /job granted", "I1: /job: token"
	for _, c := range []struct {
		name string
		play func(l *ledger.Ledger, five, nine *hold)
		want string // the beginning of the one complaint
	}{
		{"one after the other", func(l *ledger.Ledger, five, nine *hold) {
			l.Granted("/job", "a", five)
			l.Ended("/job", five)
			l.Granted("/job", "b", nine)
		}, ""},
		{"two locks", func(l *ledger.Ledger, five, nine *hold) {
			l.Granted("/job", "a", nine)
			l.Granted("/other", "b", five)
		}, ""},
		{"two who believe", func(l *ledger.Ledger, five, nine *hold) {
			l.Granted("/job", "a", five)
			l.Granted("/job", "b", nine)
		}, overlap},
		{"told in time", func(l *ledger.Ledger, five, nine *hold) {
			l.Granted("/job", "a", five)
			five.told = true
			l.Granted("/job", "b", nine)
		}, ""},
		{"a smaller token", func(l *ledger.Ledger, five, nine *hold) {
			l.Granted("/job", "a", nine)
			l.Ended("/job", nine)
			l.Granted("/job", "b", five)
		}, smaller},
		{"the same token", func(l *ledger.Ledger, five, _ *hold) {
			l.Granted("/job", "a", five)
			l.Ended("/job", five)
			l.Granted("/job", "b", &hold{token: 5})
		}, smaller},
		{"a smaller token, told before it was looked at", func(l *ledger.Ledger, five, nine *hold) {
			l.Granted("/job", "a", nine)
			five.told = true
			l.Granted("/job", "b", five)
		}, ""},
		{"the holder's node is deleted by an admin", func(l *ledger.Ledger, five, nine *hold) {
			l.Granted("/job", "a", five)
			l.Deleting(five.Node())
			l.Granted("/job", "b", nine)
		}, ""},
		{"the next one's node is: no excuse", func(l *ledger.Ledger, five, nine *hold) {
			l.Granted("/job", "a", five)
			l.Deleting(nine.Node())
			l.Granted("/job", "b", nine)
		}, overlap},
		{"granted first, deleted by an admin, heard of second", func(l *ledger.Ledger, five, nine *hold) {
			l.Deleting(five.Node())
			l.Granted("/job", "b", nine)
			l.Granted("/job", "a", five)
		}, ""},
		{"the holder's session is being killed", func(l *ledger.Ledger, five, nine *hold) {
			l.Granted("/job", "a", five)
			l.Killing("a")
			l.Granted("/job", "b", nine)
		}, ""},
		{"the holder's session was killed", func(l *ledger.Ledger, five, nine *hold) {
			l.Granted("/job", "a", five)
			l.Killing("a")(8)
			l.Granted("/job", "b", nine)
		}, ""},
		{"an earlier session of the holder's was killed: no excuse", func(l *ledger.Ledger, five, nine *hold) {
			l.Killing("a")(4)
			l.Granted("/job", "a", five)
			l.Granted("/job", "b", nine)
		}, overlap},
		{"readers, in any order", func(l *ledger.Ledger, five, nine *hold) {
			five.reads, nine.reads = true, true
			l.Granted("/job", "b", nine)
			l.Granted("/job", "a", five)
		}, ""},
		{"a reader beside a writer", func(l *ledger.Ledger, five, nine *hold) {
			nine.reads = true
			l.Granted("/job", "a", five)
			l.Granted("/job", "b", nine)
		}, overlap},
		{"a writer beside the first of two readers", func(l *ledger.Ledger, five, nine *hold) {
			five.reads = true
			six := &hold{token: 6, reads: true}
			l.Granted("/job", "a", five)
			l.Granted("/job", "b", six)
			l.Ended("/job", six)
			l.Granted("/job", "c", nine)
		}, overlap},
		{"a writer that reads, and the next", func(l *ledger.Ledger, five, nine *hold) {
			reads := &hold{token: 5, reads: true}
			l.Granted("/job", "a", five)
			l.Granted("/job", "a", reads)
			l.Ended("/job", five)
			l.Ended("/job", reads)
			l.Granted("/job", "b", nine)
		}, ""},
		{"the next beside a writer that reads on", func(l *ledger.Ledger, five, nine *hold) {
			l.Granted("/job", "a", five)
			l.Granted("/job", "a", &hold{token: 5, reads: true})
			l.Ended("/job", five)
			l.Granted("/job", "b", nine)
		}, overlap},
		{"a reader with a smaller token than the last writer's", func(l *ledger.Ledger, five, nine *hold) {
			five.reads = true
			l.Granted("/job", "b", nine)
			l.Ended("/job", nine)
			l.Granted("/job", "a", five)
		}, smaller},
		{"a writer with a smaller token than the last reader's", func(l *ledger.Ledger, five, nine *hold) {
			nine.reads = true
			l.Granted("/job", "b", nine)
			l.Ended("/job", nine)
			l.Granted("/job", "a", five)
		}, smaller},
		{"told at the first look after a pause, after the next grant", func(l *ledger.Ledger, five, nine *hold) {
			l.Granted("/job", "a", five)
			resumed := l.Pausing("a")
			l.Granted("/job", "b", nine)
			five.told = true
			resumed()
		}, ""},
		{"not told at the first look after a pause", func(l *ledger.Ledger, five, nine *hold) {
			l.Granted("/job", "a", five)
			resumed := l.Pausing("a")
			l.Granted("/job", "b", nine)
			resumed()
		}, "I5: a was paused"},
		{"a reader that is not told at the first look", func(l *ledger.Ledger, five, nine *hold) {
			five.reads = true
			l.Granted("/job", "a", five)
			resumed := l.Pausing("a")
			l.Granted("/job", "b", nine)
			resumed()
		}, "I5: a was paused"},
		{"its node was deleted by an admin during the pause", func(l *ledger.Ledger, five, nine *hold) {
			l.Granted("/job", "a", five)
			resumed := l.Pausing("a")
			l.Deleting(five.Node())
			l.Granted("/job", "b", nine)
			resumed()
		}, ""},
		{"somebody else is paused, or was: no excuse", func(l *ledger.Ledger, five, nine *hold) {
			l.Pausing("a")()
			l.Pausing("b")
			l.Granted("/job", "a", five)
			l.Granted("/job", "b", nine)
		}, overlap},
		{"somebody else's session is being killed: no excuse", func(l *ledger.Ledger, five, nine *hold) {
			l.Granted("/job", "a", five)
			l.Killing("b")
			l.Granted("/job", "b", nine)
		}, overlap},
	} {
		var said []string
		c.play(ledger.New(func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }), &hold{token: 5}, &hold{token: 9})
		if c.want == "" {
			require.Empty(t, said, c.name)
			continue
		}
		require.Len(t, said, 1, c.name)
		require.Contains(t, said[0], c.want, c.name)
	}
}

// With real holds: an admin of whom the ledger hears nothing deletes the holder's node, which is
// outside of what I5 assumes, and the next one has the lock while the holder believes.
func TestLedger_CatchesTwoWhoBelieve(t *testing.T) {
	srv := zktest.Start(t)
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	t.Cleanup(cancel)
	var said []string
	l := ledger.New(func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) })
	for range 2 {
		require.Empty(t, said)
		s, err := zklock.Connect(ctx, srv.Addr(), zklock.WithSessionTimeout(20*time.Second), zklock.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		m, err := zklock.NewMutex(s, "/job")
		require.NoError(t, err)
		h, err := m.Acquire(ctx)
		require.NoError(t, err)
		require.True(t, l.Granted(m.Path(), "", h))
		require.NoError(t, srv.Delete(h.Node()))
	}
	require.Len(t, said, 1)
	require.Contains(t, said[0], "I5: /job granted")
}
