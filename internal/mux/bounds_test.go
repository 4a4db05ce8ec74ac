package mux

// These tests attack the memory that a server's responses can take: the frames of a handshake are
// short, and the client gets no response that claims more items than it has.

import (
	"encoding/binary"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/expire"
	"github.com/zklock/zklock/internal/wire"
)

// begunFrame is the beginning of a frame: its length, and some of its bytes.
func begunFrame(length uint32, body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, length), body...)
}

// R107: a SASL token that is longer than any mechanism needs is not read. A token of 48,000 bytes,
// the limit for Kerberos on Windows, is.
func TestMux_SASL_LongFrame_IsLeftUnread(t *testing.T) {
	for length, says := range map[uint32]string{
		wire.MaxHandshake + 1: "not authenticated: SASL: the server's token is longer than zklock reads",
		wire.MaxHandshake:     "not authenticated: SASL: i/o timeout",
	} {
		synctest.Test(t, func(t *testing.T) {
			tt := newTapTest(t)
			tt.sink.sasl, tt.conn.readErr = twoSteps(t), os.ErrDeadlineExceeded
			tt.send(connectBody())
			tt.conn.in.Write(framed(connectAnswer(10_000, 0x77)))
			tt.conn.in.Write(begunFrame(length, tokenReply(firstXid, 0, "the first bytes")))
			_, err := tt.tap.Read(make([]byte, 4))
			require.Error(t, err)
			require.Equal(t, says, tt.sink.take()[0])
		})
	}
	synctest.Test(t, func(t *testing.T) {
		tt := newTapTest(t)
		tt.sink.sasl = twoSteps(t)
		tt.send(connectBody())
		tt.conn.in.Write(framed(connectAnswer(10_000, 0x77)))
		tt.conn.in.Write(framed(tokenReply(firstXid, 0, strings.Repeat("k", 48_000))))
		tt.conn.in.Write(framed(tokenReply(firstXid-1, 0, "two")))
		require.Equal(t, framed(connectAnswer(10_000, 0x77)), readFrame(t, tt))
	})
}

// R107: the limit also applies to the connect response, and to SASL when a session that was given
// up is ended. After the handshake, responses may be longer.
func TestMux_Handshake_LongFrame_IsLeftUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tt := newTapTest(t)
		tt.conn.readErr = os.ErrDeadlineExceeded
		tt.send(connectBody())
		tt.conn.in.Write(begunFrame(wire.MaxHandshake+1, connectAnswer(10_000, 0x77)))
		_, err := tt.tap.Read(make([]byte, 4))
		require.ErrorContains(t, err, "the connect response: wire: malformed record")
	})
	synctest.Test(t, func(t *testing.T) {
		tt := newTapTest(t)
		tt.sink.approach, tt.sink.sasl, tt.conn.readErr = EndIt, twoSteps(t), io.ErrNoProgress
		tt.conn.in.Write(framed(connectAnswer(10_000, 0x77)))
		tt.conn.in.Write(begunFrame(wire.MaxHandshake+1, tokenReply(2, 0, "one")))
		tt.conn.in.Write(make([]byte, wire.MaxHandshake))
		tt.send(connectBody())
		require.Equal(t, "asked to end: "+string(expire.NoAnswer), tt.sink.take()[0])
		require.GreaterOrEqual(t, tt.conn.in.Len(), wire.MaxHandshake, "the token is left unread")
	})
	synctest.Test(t, func(t *testing.T) {
		tt := newTapTest(t)
		tt.shake()
		tt.send(clientFrame(1, wire.OpGetData, 0))
		tt.mustServe(reply(1, 9, 0, wire.Frame(wire.DataResponse{Data: make([]byte, 2*wire.MaxHandshake)})[4:]...))
	})
}

// R107, R120: go-zookeeper allocates memory for as many items as a response claims, before it
// checks that their bytes exist: a frame of 24 bytes takes 32 GB and ends the process. A truncated
// response to a multi makes it panic. The client gets an error response instead.
func TestMux_AnswerToTheClient_ClaimsWhatItHasNot(t *testing.T) {
	most, null := []byte{0x7f, 0xff, 0xff, 0xff}, []byte{0xff, 0xff, 0xff, 0xff}
	stat := wire.Frame(wire.Stat{Czxid: 1})[4:]
	for name, tc := range map[string]struct {
		op    wire.Op
		body  []byte
		wrong bool
	}{
		"a list of 2^31 names":             {wire.OpGetChildren2, most, true},
		"a list of 2^31 names, old":        {wire.OpGetChildren, most, true},
		"a list that is null":              {wire.OpGetChildren2, append(null[:4:4], stat...), true},
		"a list without its stat":          {wire.OpGetChildren2, make([]byte, 4), true},
		"a list of none":                   {wire.OpGetChildren2, append(make([]byte, 4), stat...), false},
		"data of 2^31 bytes":               {wire.OpGetData, most, true},
		"data that is null":                {wire.OpGetData, append(null[:4:4], stat...), false},
		"an ACL of 2^31 entries":           {wire.OpGetACL, most, true},
		"an ACL that is null":              {wire.OpGetACL, append(null[:4:4], stat...), true},
		"a configuration of 2^31 bytes":    {wire.OpReconfig, most, true},
		"a multi that is cut off":          {wire.OpMulti, []byte{0, 0, 0, 13}, true},
		"a multi with more than was asked": {wire.OpMulti, wire.Frame(wire.MultiResponse{Results: make([]wire.MultiResult, 9)})[4:], true},
		"a multi":                          {wire.OpMulti, wire.Frame(wire.MultiResponse{Results: []wire.MultiResult{{Op: wire.OpCheck}}})[4:], false},
		"a stat":                           {wire.OpExists, stat, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt := newTapTest(t)
				tt.shake()
				asked := wire.Frame(wire.MultiRequest{Ops: []wire.MultiOp{{Op: wire.OpCheck, Path: "/a"}}})[4:]
				tt.send(clientFrame(1, tc.op, asked...))
				answer := framed(reply(1, 0, 0, tc.body...))
				tt.conn.in.Write(answer)
				want := answer
				if tc.wrong {
					want = framed(reply(1, 0, int32(wire.MarshallingError)))
				}
				got := make([]byte, len(answer)+1)
				n, err := tt.tap.Read(got)
				require.NoError(t, err)
				require.Equal(t, want, got[:n])
			})
		})
	}
}

// R120: the errors of a failed multi are read without keeping its results.
func TestMultiCode_LongAnswer_KeepsNothing(t *testing.T) {
	body := failedMulti(make([]wire.Code, 1<<16)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	require.Equal(t, wire.RuntimeInconsistency, multiCode(body))
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<16))
}
