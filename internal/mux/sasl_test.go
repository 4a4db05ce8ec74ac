package mux

// These tests attack the connection during SASL: order, silence, rejections, and replies to other
// requests.

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/expire"
	"github.com/zklock/zklock/internal/sasl"
	"github.com/zklock/zklock/internal/wire"
)

// twoSteps is an exchange of two tokens.
func twoSteps(t *testing.T) sasl.Exchange {
	t.Helper()
	step := 0
	x, err := sasl.Begin(func(context.Context, string) (sasl.Step, []byte, error) {
		return func(token []byte) (bool, []byte, error) {
			if string(token) == "wrong" {
				return false, nil, errors.New("a wrong token")
			}
			step++
			return step == 2, map[int][]byte{1: []byte("second")}[step], nil
		}, []byte("first"), nil
	}).Start(context.Background(), "zk1:2181")
	require.NoError(t, err)
	return x
}

func tokenReply(xid, code int32, token string) []byte {
	body := reply(xid, 0, code)
	return append(body, wire.Frame(wire.SASLToken{Token: []byte(token)})[4:]...)
}

// The client sees the complete connect response after SASL, and not before; then the credentials
// are sent, and the connection is reported with the time when the response arrived.
func TestMux_SASL_ComesFirst(t *testing.T) {
	for _, pieces := range []int{0, 1, 7} {
		synctest.Test(t, func(t *testing.T) {
			tt := newTapTest(t)
			tt.conn.pieces = pieces
			tt.sink.sasl, tt.sink.creds = twoSteps(t), []wire.AuthRequest{{Scheme: "digest", Auth: []byte("u:p")}}
			tt.send(connectBody())
			tt.conn.out.Reset()
			tt.after(time.Second)
			tt.conn.in.Write(framed(connectAnswer(10_000, 0x77)))
			tt.conn.in.Write(framed(tokenReply(firstXid, 0, "one")))
			tt.conn.in.Write(framed(tokenReply(firstXid-1, 0, "two")))
			require.Equal(t, framed(connectAnswer(10_000, 0x77)), readFrame(t, tt))
			var want []byte
			for i, token := range []string{"first", "second"} {
				want = append(want, wire.Frame(wire.RequestHeader{Xid: firstXid - int32(i), Op: wire.OpSASL}, wire.SASLToken{Token: []byte(token)})...)
			}
			require.Equal(t, append(want, authFrame(tt.sink.creds[0])...), tt.conn.out.Bytes())
			require.Equal(t, []string{"connected session=119 T=10s pw=sixteen bytes .. sent=0 answered=1"}, tt.sink.take())
			require.Zero(t, tt.seen.Connect().Before(), "the answers have no zxid")
		})
	}
}

func readFrame(t *testing.T, tt *tapTest) []byte {
	t.Helper()
	var got []byte
	for want := len(framed(connectAnswer(10_000, 0x77))); len(got) < want; {
		p := make([]byte, 5)
		n, err := tt.tap.Read(p)
		require.NoError(t, err)
		got = append(got, p[:n]...)
	}
	return got
}

// An error ends the connection early: no session is reported, and the client sees no response.
func TestMux_SASL_Fails(t *testing.T) {
	for name, tc := range map[string]struct {
		answers [][]byte
		end     error
		says    string
	}{
		"refused at the first step":    {[][]byte{tokenReply(firstXid, -115, "")}, nil, "authenticated -115"},
		"refused at the second":        {[][]byte{tokenReply(firstXid, 0, "one"), reply(firstXid-1, 0, -124)}, nil, "authenticated -124"},
		"throttled":                    {[][]byte{reply(firstXid, 0, -127)}, nil, "not authenticated: SASL: the server answered throttled (-127)"},
		"hung up":                      {nil, nil, "not authenticated: SASL: EOF"},
		"hung up between":              {[][]byte{tokenReply(firstXid, 0, "one")}, nil, "not authenticated: SASL: EOF"},
		"silent":                       {nil, os.ErrDeadlineExceeded, "not authenticated: SASL: i/o timeout"},
		"silent between":               {[][]byte{tokenReply(firstXid, 0, "one")}, os.ErrDeadlineExceeded, "not authenticated: SASL: i/o timeout"},
		"the answer to something else": {[][]byte{tokenReply(5, 0, "one")}, nil, "not authenticated: SASL: the server answered request 5 in place of -16"},
		"a token that is wrong":        {[][]byte{tokenReply(firstXid, 0, "wrong")}, nil, "not authenticated: SASL: a wrong token"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt := newTapTest(t)
				tt.sink.sasl, tt.conn.readErr = twoSteps(t), tc.end
				tt.send(connectBody())
				tt.conn.in.Write(framed(connectAnswer(10_000, 0x77)))
				for _, a := range tc.answers {
					tt.conn.in.Write(framed(a))
				}
				_, err := tt.tap.Read(make([]byte, 4))
				require.Error(t, err)
				require.Equal(t, []string{tc.says, "disconnected"}, tt.sink.take())
				require.NotZero(t, tt.conn.closes)
			})
		})
	}
}

// I6: however late the client wants the response, SASL has the handshake's time, and no more.
func TestMux_SASL_HasTheHandshakesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tt := newTapTest(t)
		var within [2]time.Time
		tt.sink.sasl = func(func([]byte) ([]byte, error)) error {
			within = [2]time.Time{tt.conn.readDeadline, tt.conn.writeDeadline}
			return nil
		}
		end := time.Now().Add(3 * time.Second)
		tt.send(connectBody())
		require.NoError(t, tt.tap.SetReadDeadline(time.Now().Add(time.Hour)))
		tt.mustServe(connectAnswer(10_000, 0x77))
		require.Equal(t, [2]time.Time{end, end}, within)
	})
}

// A session that no longer exists on the server needs no SASL.
func TestMux_SASL_NotForAnExpiredSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tt := newTapTest(t)
		tt.sink.sasl = func(func([]byte) ([]byte, error)) error { t.Error("SASL"); return nil }
		tt.send(connectBody())
		tt.mustServe(connectAnswer(0, 0))
		require.Contains(t, tt.sink.take()[0], "connected session=0")
	})
}

// F51, R65: the close of a session that was given up is sent after SASL. Until then nothing reveals
// which client ends it.
func TestMux_SASL_GivenUpSession(t *testing.T) {
	granted := connectAnswer(10_000, 0x77)
	for name, tc := range map[string]struct {
		answers [][]byte
		ops     []wire.Op
		outcome expire.Outcome
	}{
		"ended":         {[][]byte{granted, tokenReply(2, 0, "one"), tokenReply(3, 0, "two"), reply(1, 9, 0)}, []wire.Op{wire.OpSASL, wire.OpSASL, wire.OpClose}, "ended"},
		"refused":       {[][]byte{granted, reply(2, 0, -124)}, []wire.Op{wire.OpSASL}, "rejected with code -124: it expires by itself"},
		"it was gone":   {[][]byte{connectAnswer(0, 0)}, nil, "it was gone"},
		"no answer":     {nil, nil, expire.NoAnswer},
		"silence later": {[][]byte{granted, tokenReply(2, 0, "one")}, []wire.Op{wire.OpSASL, wire.OpSASL}, expire.NoAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt := newTapTest(t)
				tt.sink.approach, tt.sink.sasl = EndIt, twoSteps(t)
				for _, a := range tc.answers {
					tt.conn.in.Write(framed(a))
				}
				tt.send(connectBody())
				s, ops := wire.Stream{}, []wire.Op(nil)
				s.Add(tt.conn.out.Bytes())
				_, err := s.Next()
				require.NoError(t, err)
				for f, _ := s.Next(); f != nil; f, _ = s.Next() {
					var h wire.RequestHeader
					h.Decode(wire.NewDecoder(f[4:]))
					ops = append(ops, h.Op)
				}
				require.Equal(t, tc.ops, ops)
				require.Equal(t, "asked to end: "+string(tc.outcome), tt.sink.take()[0])
			})
		})
	}
}
