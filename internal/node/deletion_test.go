package node

// These tests attack deletion.go: the conclusions from a response that proves nothing.

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/eventlog"
	"github.com/zklock/zklock/internal/lease"
	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/mux"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/wire"
)

// server is a connection that gives the listed responses first, and answers every later request as
// if both nodes existed.
type server struct {
	link.Carrier
	first []mux.Reply
	sends func(*mux.Request) bool // if it is set, the test answers instead
	work  sync.WaitGroup
}

const conn = 3

func (c *server) AttachedConn(*link.ZKSession) (uint64, <-chan struct{}, error) {
	return conn, nil, nil
}
func (c *server) Spawn(f func()) bool       { c.work.Go(f); return true }
func (*server) Lost(*link.ZKSession, error) {}
func (*server) Because(err error) error     { return err }
func (*server) Nudge()                      {}
func (c *server) Send(_ *link.ZKSession, r *mux.Request) bool {
	if c.sends != nil {
		return c.sends(r)
	}
	a := mux.Reply{Fate: mux.WasAnswered, Conn: conn, Body: multiBody(wire.MultiResult{Op: wire.OpCheck}, wire.MultiResult{Op: wire.OpDelete})}
	if len(c.first) > 0 {
		a, c.first = c.first[0], c.first[1:]
	}
	r.Done(a)
	return true
}

// sessionOver returns a ZooKeeper session that is attached over the carrier.
func sessionOver(c link.Carrier) *link.ZKSession {
	r := mux.Response{Timeout: 10 * time.Second, SessionID: 7}
	return link.NewZKSession(c, &eventlog.Log{}, clock.New(nil), lease.SingleServer(), r, "10.0.0.1:2181", conn, lease.Exchange{})
}

func multiBody(results ...wire.MultiResult) []byte {
	return wire.Frame(wire.MultiResponse{Results: results})[4:]
}

// handOff begins the release of a mutex's node.
func handOff(r *Reaper, node string) *Deletion {
	x := r.add(&Deletion{node: node, handsOff: true})
	r.Begin(x)
	return x
}

// I1, I4, I5: a server answers a transaction with more or fewer results than it has operations, or
// without the missing node. Nothing is concluded from it, and nothing breaks.
func TestMulti_MalformedAnswer(t *testing.T) {
	for name, a := range map[string]mux.Reply{
		"no results":          {Body: multiBody()},
		"one":                 {Body: multiBody(wire.MultiResult{Op: wire.OpCheck})},
		"three, one an error": {Body: multiBody(wire.MultiResult{Op: wire.OpCheck}, wire.MultiResult{Op: wire.OpCheck}, wire.MultiResult{Op: wire.OpError, Err: wire.NoNode})},
		"NoNode of which":     {Code: wire.NoNode},
	} {
		t.Run(name, func(t *testing.T) {
			a.Fate, a.Conn = mux.WasAnswered, conn
			c := &server{first: []mux.Reply{a}}
			z := sessionOver(c)
			own := newOwn(10)
			own.add("/locks/a/p")
			own.add("/locks/a/own")
			next := own.WaitBehind("/locks/a/p", "/locks/a/own")
			x := handOff(newReaper(z, newLists(z), own), "/locks/a/p")
			<-x.Done
			c.work.Wait()
			require.NoError(t, x.Err, "it goes with the second try")
			want := queue.HandoffIsOurs
			if a.Code == wire.NoNode {
				want = queue.BlockerDeleted // it was left out
			}
			require.Equal(t, want, <-next.Notified)
		})
	}
}

// I8: a waiter that got the handoff may need the capacity of the deleted node for its lease. The
// node no longer counts when the waiter is notified.
func TestHandOff_FreesThePlaceFirst(t *testing.T) {
	for range 2_000 {
		z := sessionOver(&server{})
		own := newOwn(2)
		own.add("/locks/a/p")
		own.add("/locks/a/own")
		next := own.WaitBehind("/locks/a/p", "/locks/a/own")
		room := make(chan error)
		go func() {
			for len(next.Notified) == 0 { // it is awake when it is notified, as if on another processor
				runtime.Gosched()
			}
			_, err := own.Reserve(1, 0)
			room <- err
		}()
		handOff(newReaper(z, newLists(z), own), "/locks/a/p")
		require.NoError(t, <-room)
	}
}

// I1, I3: a waiter that is only notified of a node's deletion gets no handoff. BlockerDeleted is
// reported only if a delete was answered with success: otherwise the waiter's node may have been
// deleted in the same transaction.
func TestHearOf(t *testing.T) {
	answers := func(codes ...wire.Code) (as []mux.Reply) {
		for _, c := range codes {
			as = append(as, mux.Reply{Fate: mux.WasAnswered, Conn: conn, Code: c})
		}
		return as
	}
	for name, c := range map[string]struct {
		first []mux.Reply
		want  queue.Handoff
	}{
		"it is deleted":              {answers(wire.OK), queue.BlockerDeleted},
		"it was gone":                {answers(wire.NoNode), queue.HandoffUnknown},
		"nobody knows who did that":  {append([]mux.Reply{{Fate: mux.NoAnswer}}, answers(wire.NoNode)...), queue.HandoffUnknown},
		"it is deleted, later":       {append([]mux.Reply{{Fate: mux.NoAnswer}}, answers(wire.OK)...), queue.BlockerDeleted},
		"it may not be, and is then": {answers(wire.NoAuth, wire.OK), queue.HandoffUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{first: c.first}
			z := sessionOver(s)
			own := newOwn(10)
			own.add("/locks/a/p")
			own.add("/locks/a/own")
			hears := own.WaitForEnd("/locks/a/p", "/locks/a/own")
			<-handOff(newReaper(z, newLists(z), own), "/locks/a/p").Done
			s.work.Wait()
			require.Equal(t, c.want, <-hears.Notified)
			require.Nil(t, own.WaitForEnd("/locks/a/p", "/locks/a/own"), "it is not there any more")
		})
	}
}

// I4, I5: one of several nodes is missing. The rest are deleted singly, and the deletion does not
// count as a release of all.
func TestDeleteAll_OneIsMissing_TheOthersGo(t *testing.T) {
	missing := mux.Reply{Fate: mux.WasAnswered, Conn: conn, Body: multiBody(wire.MultiResult{Op: wire.OpError}, wire.MultiResult{Op: wire.OpError, Err: wire.NoNode})}
	single := func(code wire.Code) mux.Reply { return mux.Reply{Fate: mux.WasAnswered, Conn: conn, Code: code} }
	for name, c := range map[string]struct {
		answers []mux.Reply
		ok      bool
	}{
		"one was gone":         {[]mux.Reply{missing, single(wire.OK), single(wire.NoNode)}, false},
		"the first was gone":   {[]mux.Reply{missing, single(wire.NoNode), single(wire.OK)}, false},
		"our own delete did":   {[]mux.Reply{{Fate: mux.NoAnswer}, missing, single(wire.NoNode), single(wire.NoNode)}, true},
		"all went, told late":  {[]mux.Reply{{Fate: mux.NoAnswer}, missing, single(wire.NoNode), single(wire.OK)}, true},
		"all went, in one":     {nil, true},
		"the header says less": {[]mux.Reply{single(wire.NoNode), single(wire.OK), single(wire.OK)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			answers := len(c.answers)
			s := &server{first: c.answers}
			z := sessionOver(s)
			own := newOwn(10)
			r := newReaper(z, newLists(z), own)
			x := r.ToDelete("/l/a", "/l/b")
			r.Begin(x)
			<-x.Done
			s.work.Wait()
			require.Equal(t, c.ok, x.Err == nil)
			require.Empty(t, s.first, "of %d", answers)
			require.Empty(t, own.mu.nodes)
		})
	}
}

// I7: a transaction has a thousand operations at most, and is no longer than the servers accept.
// Each deletion succeeds with its own.
func TestBegin_TooMany_AreHalved(t *testing.T) {
	// Each operation has 31 bytes with this path, and the rest of the request 17.
	for name, c := range map[string]struct{ nodes, longest, requests int }{
		"one":           {1, wire.MaxFrame, 1},
		"a thousand":    {mostOps, wire.MaxFrame, 1},
		"one more":      {mostOps + 1, wire.MaxFrame, 2},
		"a short frame": {100, 1_000, 4},
	} {
		t.Run(name, func(t *testing.T) {
			requests := 0
			s := &server{sends: func(r *mux.Request) bool {
				requests++
				require.NoError(t, link.TooLong(r, c.longest))
				r.Done(mux.Reply{Fate: mux.WasAnswered, Conn: conn, Body: multiBody(slices.Repeat([]wire.MultiResult{{Op: wire.OpDelete}}, (r.Length()-17)/31)...)})
				return true
			}}
			z := sessionOver(s)
			z.Longest = c.longest
			r := newReaper(z, newLists(z), newOwn(10))
			var xs []*Deletion
			for i := range c.nodes {
				xs = append(xs, r.ToDelete(fmt.Sprintf("/locks/%05d/n", i)))
			}
			r.Begin(xs...)
			r.Begin(xs...) // has no effect
			for _, x := range xs {
				<-x.Done
				require.NoError(t, x.Err)
			}
			require.Equal(t, c.requests, requests)
			require.Zero(t, r.Deleting())
		})
	}
}
