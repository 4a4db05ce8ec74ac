package expire_test

// These tests attack the end of a session with servers that respond late or not at all, or with
// another session.

import (
	"context"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/expire"
	"github.com/zklock/zklock/internal/sasl"
	"github.com/zklock/zklock/internal/wire"
	"github.com/zklock/zklock/zktest"
)

const session = 0x10

// stub is a server of one session, in virtual time. It counts connections, and the closes that it
// has read.
type stub struct {
	net          *zktest.Network
	addr         string
	tries, ended atomic.Int32
}

// response is what a stub makes of one connection: it is silent, or closes the connection, or after
// delay it attaches the client to a session, 0 for none, and responds to the client's requests if
// answers is set.
type response struct {
	silent  bool
	closes  bool
	delay   time.Duration
	session int64
	answers bool
}

// inTime runs f with a stub whose nth connection gets the nth response, and those after the last
// one that.
func inTime(t *testing.T, responses []response, f func(t *testing.T, s *stub)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stub{net: zktest.NewNetwork()}
		l, err := s.net.Listen("")
		require.NoError(t, err)
		defer l.Close()
		s.addr = l.Addr().String()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				n := int(s.tries.Add(1))
				go s.serve(c, responses[min(n, len(responses))-1])
			}
		}()
		f(t, s)
	})
}

func (s *stub) dial(timeout time.Duration) (net.Conn, error) {
	return s.net.Dial("tcp", s.addr, timeout)
}

// serve ends when the client has closed the connection.
func (s *stub) serve(c net.Conn, r response) {
	defer c.Close()
	if _, err := wire.ReadFrame(c, wire.MaxFrame); err != nil {
		return
	}
	time.Sleep(r.delay)
	if r.closes {
		return
	}
	if !r.silent {
		_, _ = c.Write(wire.Frame(wire.ConnectResponse{Timeout: 10_000, SessionID: r.session, Password: make([]byte, 16)}))
	}
	for {
		body, err := wire.ReadFrame(c, wire.MaxFrame)
		if err != nil {
			return
		}
		var h wire.RequestHeader
		h.Decode(wire.NewDecoder(body))
		if h.Op == wire.OpClose {
			s.ended.Add(1)
		}
		switch {
		case r.silent || !r.answers:
		case h.Op == wire.OpSASL:
			_, _ = c.Write(wire.Frame(wire.ReplyHeader{Xid: h.Xid}, wire.SASLToken{Token: []byte{}}))
		default:
			_, _ = c.Write(wire.Frame(wire.ReplyHeader{Xid: h.Xid}))
		}
	}
}

var (
	silent     = response{silent: true}
	unanswered = response{session: session}
	closes     = response{closes: true}
	gone       = response{}
	slow       = response{delay: 3 * time.Second, session: session, answers: true}
)

// R125: ZooKeeper ends a session that several clients close at the same time, and does not respond
// to one of them. Other servers are slow.
func TestVirtual_Session_NoResponse_IsTriedAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		responses []response
		tries     int32
		takes     time.Duration
	}{
		"the close is not answered":      {[]response{unanswered, gone}, 2, 250 * time.Millisecond},
		"three times":                    {[]response{unanswered, unanswered, unanswered, gone}, 4, 1750 * time.Millisecond},
		"the connect is not answered":    {[]response{silent, gone}, 2, 250 * time.Millisecond},
		"a server that needs 3 s":        {[]response{slow}, 5, 6750 * time.Millisecond},
		"a server that answers the last": {[]response{silent, silent, silent, silent, slow}, 5, 6750 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			inTime(t, tc.responses, func(t *testing.T, s *stub) {
				began := time.Now()
				was, err := expire.Session(s.dial, session, nil)
				require.NoError(t, err)
				require.True(t, was)
				require.Equal(t, tc.tries, s.tries.Load())
				require.Equal(t, tc.takes, time.Since(began))
			})
		})
	}
}

// A dial that takes too long is tried again, and counts for nothing: if the session is missing
// then, it was missing before.
func TestVirtual_Session_DialTimesOut_IsTriedAgain(t *testing.T) {
	inTime(t, []response{gone}, func(t *testing.T, s *stub) {
		dials := 0
		was, err := expire.Session(func(timeout time.Duration) (net.Conn, error) {
			if dials++; dials < 3 {
				time.Sleep(timeout)
				return nil, &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
			}
			return s.dial(timeout)
		}, session, nil)
		require.NoError(t, err)
		require.False(t, was)
		require.Equal(t, 3, dials)
	})
}

// A server that never responds takes ten seconds, and no more.
func TestVirtual_Session_NeverAnswered_EndsInTime(t *testing.T) {
	for name, r := range map[string]response{"silent": silent, "the close": unanswered} {
		t.Run(name, func(t *testing.T) {
			inTime(t, []response{r}, func(t *testing.T, s *stub) {
				began := time.Now()
				_, err := expire.Session(s.dial, session, nil)
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
				require.Equal(t, expire.Timeout, time.Since(began))
				require.EqualValues(t, 5, s.tries.Load())
			})
		})
	}
}

// R126: a server that opens another session has ended nothing. The one that it opened is closed,
// also where SASL comes first.
func TestVirtual_Session_AnotherSession_ReportsThatNothingEnded(t *testing.T) {
	begin := sasl.Begin(func(context.Context, string) (sasl.Step, []byte, error) {
		return func([]byte) (bool, []byte, error) { return true, nil, nil }, []byte("who"), nil
	})
	for name, start := range map[string]sasl.Begin{"plain": nil, "SASL": begin} {
		t.Run(name, func(t *testing.T) {
			inTime(t, []response{{session: 0x77, answers: true}}, func(t *testing.T, s *stub) {
				was, err := expire.Session(s.dial, session, func(time.Time) (creds expire.Credentials, err error) {
					creds.SASL, err = start.Start(t.Context(), s.addr)
					return creds, err
				})
				require.ErrorIs(t, err, expire.ErrAnotherSession)
				require.ErrorContains(t, err, "0x77")
				require.False(t, was)
				require.EqualValues(t, 1, s.tries.Load())
				require.EqualValues(t, 1, s.ended.Load())
			})
		})
	}
}

// R140: a server that closes each connection is tried for ten seconds, and not in a busy loop.
func TestVirtual_Session_EachConnectionClosed_Pauses(t *testing.T) {
	inTime(t, []response{closes}, func(t *testing.T, s *stub) {
		began := time.Now()
		_, err := expire.Session(s.dial, session, nil)
		require.ErrorIs(t, err, io.EOF)
		require.InDelta(t, expire.Timeout.Seconds(), time.Since(began).Seconds(), 0.3)
		require.InDelta(t, 45, s.tries.Load(), 5)
	})
}

// inAName runs f with a name that has two addresses: what the first one makes of each connection,
// and a server of the session.
func inAName(t *testing.T, first response, f func(t *testing.T, s *stub, addrs []string)) {
	t.Helper()
	inTime(t, []response{{session: session, answers: true}}, func(t *testing.T, s *stub) {
		other := &stub{net: s.net}
		l, err := s.net.Listen("")
		require.NoError(t, err)
		defer l.Close()
		go func() {
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				go other.serve(c, first)
			}
		}()
		f(t, s, []string{l.Addr().String(), s.addr})
		require.EqualValues(t, 1, s.ended.Load())
	})
}

// R140: a name's first address leads to a server that hangs, starts, or is of another kind. The
// next attempt is at the next address.
func TestVirtual_SeveralAddresses_EachIsTried(t *testing.T) {
	for name, first := range map[string]response{"hangs": silent, "starts": closes, "no quorum": unanswered} {
		t.Run(name, func(t *testing.T) {
			inAName(t, first, func(t *testing.T, s *stub, addrs []string) {
				began := time.Now()
				lookup := func(context.Context) ([]string, error) { return addrs, nil }
				was, err := expire.Session(expire.InTurn(lookup, func(at string, timeout time.Duration) (net.Conn, error) {
					return s.net.Dial("tcp", at, timeout)
				}), session, nil)
				require.NoError(t, err)
				require.True(t, was)
				require.LessOrEqual(t, time.Since(began), expire.FirstLimit)
			})
			inAName(t, first, func(t *testing.T, s *stub, addrs []string) {
				began, failures := time.Now(), 0
				was, err := expire.Dead(t.Context(), wire.ConnectRequest{SessionID: session}, expire.Ensemble{
					Servers:   []string{"zk:2181"},
					Addresses: func(context.Context, string) ([]string, error) { return addrs, nil },
					Open: func(ctx context.Context, server, at string) (net.Conn, expire.Credentials, error) {
						require.Equal(t, "zk:2181", server)
						deadline, _ := ctx.Deadline()
						c, err := s.net.Dial("tcp", at, time.Until(deadline))
						return c, expire.Credentials{}, err
					},
					Failed: func(error) { failures++ },
				})
				require.NoError(t, err)
				require.True(t, was)
				require.LessOrEqual(t, time.Since(began), expire.FirstLimit)
				require.Equal(t, 1, failures)
			})
		})
	}
}
