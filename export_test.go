package zklock

// What tests outside of the package need from inside.

import (
	"context"
	"reflect"
	"time"

	"github.com/zklock/zklock/internal/sessionkey"
)

// WithSuspendedTime replaces what the clock takes as the time the machine was suspended.
func WithSuspendedTime(f func() time.Duration) Option {
	return func(o *sessionOptions) { o.suspendedTime = f }
}

// Key returns the key of the current ZooKeeper session.
func (s *Session) Key() sessionkey.Key { return s.key() }

// Joiners returns how many calls wait in the owner's attempt.
func (m *Mutex) Joiners(o Owner) int {
	m.s.locks.mu.Lock()
	defer m.s.locks.mu.Unlock()
	d := m.s.locks.byKey[lockKey{m.root.path, o}]
	if d == nil || d.acquiring == nil {
		return 0
	}
	return len(d.acquiring.calls)
}

// Footprint counts what the Session and its client remember.
func (s *Session) Footprint() map[string]int {
	n := map[string]int{}
	e, t, _, _ := s.link.now()
	s.link.dials.mu.Lock()
	n["tried"] = len(s.link.dials.mu.tried)
	s.link.dials.mu.Unlock()
	n["unanswered"], n["ours"], n["pings"], n["waiting"] = t.Outstanding()
	e.mu.Lock()
	n["held"] = len(e.mu.held)
	e.mu.Unlock()
	e.reaper.mu.Lock()
	n["erasing"], n["strays"] = len(e.reaper.mu.erasing), len(e.reaper.mu.strays)
	e.reaper.mu.Unlock()
	e.nodes.mu.Lock()
	n["making"], n["nodes"] = e.nodes.mu.seats, len(e.nodes.mu.nodes)
	for _, node := range e.nodes.mu.nodes {
		n["waiting for a turn"] += len(node.behind)
	}
	e.nodes.mu.Unlock()
	e.lister.mu.Lock()
	n["lists"] = len(e.lister.mu.queues)
	e.lister.mu.Unlock()
	e.watcher.mu.Lock()
	n["watches"], n["queued"] = len(e.watcher.mu.watches), e.watcher.mu.queued
	e.watcher.mu.Unlock()
	s.locks.mu.Lock()
	n["locks"] = len(s.locks.byKey)
	s.locks.mu.Unlock()
	s.link.feed.mu.Lock()
	n["readers"] = len(s.link.feed.mu.readers)
	s.link.feed.mu.Unlock()
	s.roots.mu.Lock()
	n["roots"] = len(s.roots.byPath)
	s.roots.mu.Unlock()
	watchers := reflect.ValueOf(s.conn).Elem().FieldByName("watchers") // of the client: channels, by path and kind
	for i := watchers.MapRange(); i.Next(); {
		n["client channels"] += i.Value().Len()
	}
	return n
}

// WithLookup replaces the look-up of host names.
func WithLookup(f func(ctx context.Context, host string) ([]string, error)) Option {
	return func(o *sessionOptions) { o.lookup = f }
}

// Password returns the password of the current ZooKeeper session.
func (s *Session) Password() []byte {
	return s.link.era().password.reveal()
}
