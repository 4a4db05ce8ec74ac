package mux

// These tests attack our requests between the client's: the fate of each, their number and their
// order.

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/wire"
)

// ask sends a request of ours, and returns the list in which its fates are noted.
func (t *tapTest) ask(op wire.Op, body wire.Record) *[]Reply {
	t.Helper()
	fates := new([]Reply)
	require.True(t, t.tap.Enqueue(NewRequest(op, body, func(a Reply) { a.Body = slices.Clone(a.Body); *fates = append(*fates, a) })))
	synctest.Wait() // until it is written
	return fates
}

// answer makes the server reply to a request of ours.
func (t *tapTest) answer(xid int32, zxid int64, code wire.Code, body ...byte) {
	t.Helper()
	t.consume(reply(xid, zxid, int32(code), body...))
	synctest.Wait() // until the requests that waited for capacity are written
}

var root = wire.PathWatchRequest{Path: "/"}

// A request of ours is sent between the client's, with an xid that the client does not use. The
// client sees nothing of the reply, which proves as much about the session as any other reply, and
// has the number of its connection.
func TestRequest_IsAnswered_ClientSeesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tt := newTapTest(t)
		tt.shake()
		tt.send(clientFrame(1, wire.OpExists))
		tt.after(time.Second)
		first := tt.ask(wire.OpCreate, wire.CreateRequest{Path: "/a", Flags: 3})
		second := tt.ask(wire.OpDelete, wire.PathVersionRequest{Path: "/b", Version: -1})
		tt.send(clientFrame(2, wire.OpExists))
		tt.after(time.Second)

		var sent []wire.RequestHeader
		var s wire.Stream
		s.Add(tt.conn.out.Bytes())
		_, _ = s.Next() // the connect request
		for f, _ := s.Next(); f != nil; f, _ = s.Next() {
			var h wire.RequestHeader
			h.Decode(wire.NewDecoder(f[4:]))
			sent = append(sent, h)
		}
		require.Equal(t, []wire.RequestHeader{{Xid: 1, Op: wire.OpExists}, {Xid: -16, Op: wire.OpCreate}, {Xid: -17, Op: wire.OpDelete}, {Xid: 2, Op: wire.OpExists}}, sent)

		tt.mustServe(reply(1, 100, 0))
		tt.answer(-16, 101, 0, 'b', 'o', 'd', 'y')
		tt.answer(-17, 103, wire.NoNode)
		require.EqualValues(t, 103, tt.seen.Connect().Before(), "the last zxid counts our replies too")
		tt.mustServe(reply(2, 104, 0))
		require.Equal(t, []Reply{{Fate: WasAnswered, Conn: 1, Zxid: 101, Body: []byte("body")}}, *first)
		require.Equal(t, []Reply{{Fate: WasAnswered, Conn: 1, Zxid: 103, Code: wire.NoNode}}, *second)
		require.Equal(t, []string{"answered 0-2", "answered 1-2", "quorum 1", "answered 1-2", "answered 1-2"}, tt.sink.take())
	})
}

// The effect of the connection's end on each request: only a request that was handed to the network
// may have been executed.
func TestRequest_Fates(t *testing.T) {
	for _, how := range []struct {
		name string
		end  func(*tapTest)
	}{
		{"cut", func(tt *tapTest) { tt.tap.Cut() }},
		{"closed by the client", func(tt *tapTest) { _ = tt.tap.Close() }},
		{"the server hangs up", func(tt *tapTest) { _, _ = tt.tap.Read(make([]byte, 1)) }},
		{"a write fails, a part of a frame may be out", func(tt *tapTest) {
			tt.conn.writeErr = io.ErrShortWrite
			tt.send(clientFrame(9, wire.OpExists))
		}},
	} {
		t.Run(how.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt := newTapTest(t)
				tt.shake()
				sent := tt.ask(wire.OpExists, root)
				tt.tap.mu.writing = true // somebody writes and does not get on
				fates := new([]Reply)
				require.True(t, tt.tap.Enqueue(NewRequest(wire.OpExists, root, func(a Reply) { *fates = append(*fates, a) })))
				if how.name == "a write fails, a part of a frame may be out" {
					tt.tap.mu.writing = false // it is this one's frame
				}
				how.end(tt)
				hungUpOn := 0
				if how.name == "the server hangs up" {
					hungUpOn = 14 // bytes of the request
				}
				require.Equal(t, []Reply{{Fate: NoAnswer, Conn: 1, HungUpOn: hungUpOn}}, *sent)
				want := NeverSent
				if tt.conn.writeErr != nil {
					want = NoAnswer
				}
				require.Equal(t, []Reply{{Fate: want, Conn: 1}}, *fates)
				require.Equal(t, "disconnected", tt.sink.log[len(tt.sink.log)-1], "told before the fates: who asks again waits for the next connection")
				require.False(t, tt.tap.Enqueue(NewRequest(wire.OpExists, root, func(Reply) { t.Error("it was refused") })))
			})
		})
	}
}

// R112: the kind of request at which a server ends the connection because it may not know it: the
// oldest request without a reply, unless the server has replied to another of its kind.
func TestRequest_HangUpAt(t *testing.T) {
	old := func(tt *tapTest) { tt.after(time.Second) }
	create := func(tt *tapTest) { tt.ask(wire.OpCreate2, root) }
	list := func(tt *tapTest) { tt.ask(wire.OpGetChildren2, root) }
	hangUp := func(tt *tapTest) { _, _ = tt.tap.Read(make([]byte, 1)) }
	for name, tc := range map[string]struct {
		steps []func(*tapTest)
		want  wire.Op
	}{
		"nothing to respond to":       {[]func(*tapTest){hangUp}, 0},
		"one request":                 {[]func(*tapTest){create, hangUp}, wire.OpCreate2},
		"a list in the same flight":   {[]func(*tapTest){create, list, hangUp}, wire.OpCreate2},
		"a list before it":            {[]func(*tapTest){list, create, hangUp}, wire.OpGetChildren2},
		"we end the connection":       {[]func(*tapTest){create, func(tt *tapTest) { tt.tap.Cut() }}, 0},
		"the client's is older":       {[]func(*tapTest){func(tt *tapTest) { tt.send(clientFrame(1, wire.OpExists)) }, old, create, hangUp}, 0},
		"the client's ping is older":  {[]func(*tapTest){func(tt *tapTest) { tt.send(clientFrame(wire.XidPing, wire.OpPing)) }, old, create, hangUp}, 0},
		"the client's is younger":     {[]func(*tapTest){create, old, func(tt *tapTest) { tt.send(clientFrame(1, wire.OpExists)) }, hangUp}, wire.OpCreate2},
		"a response to such a one":    {[]func(*tapTest){create, func(tt *tapTest) { tt.answer(-16, 1, 0) }, create, hangUp}, 0},
		"a response to one of others": {[]func(*tapTest){list, func(tt *tapTest) { tt.answer(-16, 1, 0) }, create, hangUp}, wire.OpCreate2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt := newTapTest(t)
				tt.shake()
				tt.sink.why = errors.New("why")
				for _, step := range tc.steps {
					step(tt)
				}
				require.Equal(t, tc.want, tt.sink.hangUp.At)
			})
		})
	}
}

// Only the requests of that kind get the sink's reason.
func TestRequest_HangUp_Why(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tt := newTapTest(t)
		tt.shake()
		tt.sink.why = errors.New("why")
		first, list, second := tt.ask(wire.OpCreate2, root), tt.ask(wire.OpGetChildren2, root), tt.ask(wire.OpCreate2, root)
		_, _ = tt.tap.Read(make([]byte, 1))
		require.Equal(t, tt.sink.why, (*first)[0].Why)
		require.NoError(t, (*list)[0].Why)
		require.Equal(t, tt.sink.why, (*second)[0].Why)
	})
}

// No request of ours is sent before the handshake, or after the client has closed the session.
func TestRequest_NotBeforeTheHandshake_NotAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tt := newTapTest(t)
		r := NewRequest(wire.OpExists, root, func(Reply) { t.Error("it was refused") })
		require.False(t, tt.tap.Enqueue(r))
		tt.send(connectBody())
		require.False(t, tt.tap.Enqueue(r))
		tt.mustServe(connectAnswer(10_000, 0x77))
		tt.send(clientFrame(1, wire.OpClose))
		require.False(t, tt.tap.Enqueue(r))
	})
}

// A server that replies to a request that was never sent cannot be trusted with the rest.
func TestRequest_AnswerToNothing_EndsTheConnection(t *testing.T) {
	for _, xid := range []int32{-16, -17, -1 << 31} {
		synctest.Test(t, func(t *testing.T) {
			tt := newTapTest(t)
			tt.shake()
			tt.ask(wire.OpExists, root)
			tt.answer(-16, 1, 0)
			tt.sink.take()
			require.ErrorContains(t, tt.serve(reply(xid, 1, 0)), "which was not made")
			require.Equal(t, []string{"disconnected"}, tt.sink.take())
		})
	}
	synctest.Test(t, func(t *testing.T) { // what is the client's to judge
		tt := newTapTest(t)
		tt.shake()
		for _, xid := range []int32{77, -8, -15} {
			tt.mustServe(reply(xid, 1, 0))
		}
		require.Empty(t, tt.sink.take())
	})
}

// A reply that is longer than the mux reads: the caller, ours or the client's, gets an error
// instead, and the connection continues.
func TestRequest_AnswerTooLong_IsLeftOut(t *testing.T) {
	for _, piece := range []int{1, 3, 100, 100_000} {
		synctest.Test(t, func(t *testing.T) {
			tt := newTapTest(t)
			tt.shake()
			tt.tap.in.stream.Limit = 1000
			long := tt.ask(wire.OpGetChildren2, root)
			next := tt.ask(wire.OpExists, root)
			tt.send(clientFrame(1, wire.OpGetData))
			tt.conn.in.Write(framed(reply(-16, 7, 0, make([]byte, 5000)...)))
			tt.conn.in.Write(framed(reply(-17, 8, 0)))
			tt.conn.in.Write(framed(reply(1, 9, 0, make([]byte, 1000)...)))
			tt.conn.in.Write(framed(reply(77, 10, 0)))
			tt.conn.pieces = piece
			for _, xid := range []uint32{1, 77} {
				got := make([]byte, 20)
				_, err := io.ReadFull(tt.tap, got)
				require.NoError(t, err)
				require.Equal(t, xid, binary.BigEndian.Uint32(got[4:]))
				require.Equal(t, xid == 1, wire.Code(binary.BigEndian.Uint32(got[16:])) == wire.ReplyTooLong)
			}
			require.Equal(t, []Reply{{Fate: WasAnswered, Conn: 1, Zxid: 7, Code: wire.ReplyTooLong}}, *long)
			require.Len(t, *next, 1)
			require.Equal(t, wire.OK, (*next)[0].Code)
		})
	}
}

// The unanswered requests are limited, in frames and in bytes. The rest waits in order, is sent
// when replies arrive, and has never been sent if none do; a heartbeat does not wait.
func TestRequest_Bounded(t *testing.T) {
	for _, tc := range []struct {
		name string
		size int // of a frame
		most int
	}{{"frames", 40, mostFrames}, {"bytes", 100_000, mostBytes / 100_000}} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt := newTapTest(t)
				tt.shake()
				body := wire.Raw(make([]byte, tc.size-12))
				var all []*[]Reply
				for range tc.most + 10 {
					all = append(all, tt.ask(wire.OpExists, body))
				}
				outstanding := func() int { return len(tt.tap.mu.pending) }
				require.Equal(t, tc.most, outstanding())
				r := NewRequest(wire.OpMulti, body, func(Reply) {})
				r.Urgent = true
				require.True(t, tt.tap.Enqueue(r))
				synctest.Wait()
				require.Equal(t, tc.most+1, outstanding())
				for i := range 5 {
					tt.answer(-16-int32(i), 1, 0)
					require.Len(t, *all[i], 1)
				}
				require.Equal(t, tc.most, outstanding(), "the heartbeat's room is used up first")
				tt.tap.Cut()
				for i, fates := range all {
					want := NoAnswer
					switch {
					case i < 5:
						want = WasAnswered
					case i >= tc.most+4:
						want = NeverSent
					}
					require.Equal(t, want, (*fates)[0].Fate, "request %d", i)
				}
			})
		})
	}
}

// A request that would remove a watch of the client is not sent, even if it waited for capacity
// when the client set the watch. Later requests are sent.
func TestRequest_RemoveWatches_NotTheClients(t *testing.T) {
	for waits, most := range map[bool]int{false: 0, true: mostFrames} {
		synctest.Test(t, func(t *testing.T) {
			tt := newTapTest(t)
			tt.shake()
			sent := func(op wire.Op) (n int) {
				for _, x := range tt.tap.mu.pending {
					if x.op == op {
						n++
					}
				}
				return n
			}
			for range most {
				tt.ask(wire.OpExists, root)
			}
			if !waits {
				tt.ask(wire.OpRemoveWatches, root)
				require.Equal(t, 1, sent(wire.OpRemoveWatches), "the client has no watch")
				tt.send(clientFrame(1, wire.OpGetData, 1))
			}
			tt.ask(wire.OpRemoveWatches, root) // it is taken: the connection goes on
			if waits {
				tt.send(clientFrame(1, wire.OpGetData, 1))
			}
			tt.ask(wire.OpSync, root)
			tt.answer(-16, 1, 0) // the first: there is room
			require.Zero(t, sent(wire.OpRemoveWatches))
			require.Equal(t, 1, sent(wire.OpSync))
		})
	}
}

// The length is the one that servers check: xid and opcode count, and the four bytes of the length
// itself do not.
func TestRequest_Length(t *testing.T) {
	for _, n := range []int{8, wire.MaxFrame, wire.MaxFrame + 1} {
		require.Equal(t, n, NewRequest(wire.OpCreate, wire.Raw(make([]byte, n-8)), nil).Length())
	}
}

// Our xids never collide with the reserved xids, and do not restart while any request of the
// session can be in progress.
func TestXids(t *testing.T) {
	var x Xids
	require.EqualValues(t, -16, x.next())
	require.EqualValues(t, -17, x.next())
	x.n.Store(1<<31 - 33)
	require.EqualValues(t, -1<<31+17, x.next())
	require.EqualValues(t, -16, x.next())
	x.n.Store(1<<32 - 1)
	require.True(t, isOurs(x.next()))
	require.True(t, isOurs(x.next()))
	for _, xid := range []int32{0, 1, wire.XidEvent, wire.XidPing, wire.XidAuth, wire.XidSetWatches} {
		require.False(t, isOurs(xid))
	}
}

// F16: many replies to our requests and none to the client's: as long as bytes arrive in time, the
// connection is kept.
func TestVirtual_ManyAnswers_KeepTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tt := newTapTest(t)
		tt.shake()
		conn := &slowConn{fakeConn: tt.conn}
		tt.tap.Conn = conn
		for range 30 {
			tt.ask(wire.OpExists, root)
		}
		require.NoError(t, tt.tap.SetReadDeadline(time.Now().Add(20*time.Second/3))) // the client's, for the next frame
		for i := range 30 {
			conn.in.Write(framed(reply(-16-int32(i), 1, 0)))
		}
		conn.in.Write(framed(reply(wire.XidPing, 0, 0)))
		_, err := io.ReadFull(tt.tap, make([]byte, 20))
		require.NoError(t, err)
	})
}

// I7: the client leaves a server that replies to our requests but never to the client's.
func TestVirtual_OnlyOursAnswered_IsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tt := newTapTest(t)
		tt.shake()
		conn := &slowConn{fakeConn: tt.conn}
		tt.tap.Conn = conn
		tt.send(clientFrame(wire.XidPing, wire.OpPing))
		for i := range 60 {
			tt.ask(wire.OpExists, root)
			conn.in.Write(framed(reply(-16-int32(i), 1, 0)))
		}
		require.NoError(t, tt.tap.SetReadDeadline(time.Now().Add(20*time.Second/3)))
		_, err := tt.tap.Read(make([]byte, 4))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, "disconnected", tt.sink.log[len(tt.sink.log)-1])
	})
}

// slowConn returns a frame of twenty bytes per second.
type slowConn struct{ *fakeConn }

func (c *slowConn) Read(p []byte) (int, error) {
	time.Sleep(time.Second)
	if d := c.readDeadline; !d.IsZero() && time.Now().After(d) {
		return 0, os.ErrDeadlineExceeded
	}
	return c.fakeConn.Read(p[:min(len(p), 20)])
}
