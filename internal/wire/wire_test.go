package wire_test

// These tests attack the records: there and back, cut short, malformed.

import (
	"bytes"
	"encoding/hex"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/wire"
)

// decodable is every record, so that one table can encode and decode each.
type decodable interface {
	wire.Record
	Decode(d *wire.Decoder)
}

var (
	stat = wire.Stat{Czxid: 1, Mzxid: 2, Ctime: 3, Mtime: 4, Version: 5, Cversion: -1, Aversion: 7,
		EphemeralOwner: 8, DataLength: 9, NumChildren: 10, Pzxid: 11}
	acls   = []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "world", ID: "anyone"}}}
	create = wire.CreateRequest{Path: "/a", Data: []byte("x"), ACL: acls, Flags: wire.FlagEphemeral, TTL: -1}
)

// records holds a filled value of every record and a function that makes an empty one.
var records = []struct {
	full  decodable
	empty func() decodable
}{
	{&wire.ConnectRequest{LastZxidSeen: 1, Timeout: 2, SessionID: 3, Password: make([]byte, 16)}, func() decodable { return new(wire.ConnectRequest) }},
	{&wire.ConnectRequest{Timeout: 2, Password: []byte{}, HasReadOnly: true, ReadOnly: true}, func() decodable { return new(wire.ConnectRequest) }},
	{&wire.ConnectResponse{Timeout: 2, SessionID: 3, Password: make([]byte, 16), HasReadOnly: true}, func() decodable { return new(wire.ConnectResponse) }},
	{&wire.RequestHeader{Xid: 1, Op: wire.OpMulti}, func() decodable { return new(wire.RequestHeader) }},
	{&wire.ReplyHeader{Xid: 1, Zxid: 2, Err: wire.NoNode}, func() decodable { return new(wire.ReplyHeader) }},
	{&wire.WatcherEvent{Type: 1, State: 3, Path: "/p"}, func() decodable { return new(wire.WatcherEvent) }},
	{&create, func() decodable { return new(wire.CreateRequest) }},
	{&wire.CreateTTLRequest{CreateRequest: wire.CreateRequest{Path: "/t", ACL: acls, Flags: 5, TTL: 9}}, func() decodable { return new(wire.CreateTTLRequest) }},
	{&wire.PathRequest{Path: "/p"}, func() decodable { return new(wire.PathRequest) }},
	{&wire.PathVersionRequest{Path: "/p", Version: -1}, func() decodable { return new(wire.PathVersionRequest) }},
	{&wire.PathWatchRequest{Path: "/p", Watch: true}, func() decodable { return new(wire.PathWatchRequest) }},
	{&wire.SetDataRequest{Path: "/p", Data: []byte{}, Version: 3}, func() decodable { return new(wire.SetDataRequest) }},
	{&wire.SetACLRequest{Path: "/p", ACL: acls, Version: 3}, func() decodable { return new(wire.SetACLRequest) }},
	{&wire.AuthRequest{Scheme: "digest", Auth: []byte("u:p")}, func() decodable { return new(wire.AuthRequest) }},
	{&wire.SASLToken{Token: []byte("t")}, func() decodable { return new(wire.SASLToken) }},
	{&wire.SetWatchesRequest{RelativeZxid: 1, Data: []string{"/a"}, Child: []string{"/b", "/c"}}, func() decodable { return new(wire.SetWatchesRequest) }},
	{&wire.SetWatches2Request{SetWatchesRequest: wire.SetWatchesRequest{Exist: []string{"/a"}, Persistent: []string{"/p"}, Recursive: []string{"/r"}}}, func() decodable { return new(wire.SetWatches2Request) }},
	{&wire.WatchesRequest{Path: "/p", Type: wire.WatcherAny}, func() decodable { return new(wire.WatchesRequest) }},
	{&wire.AddWatchRequest{Path: "/p", Mode: 1}, func() decodable { return new(wire.AddWatchRequest) }},
	{&wire.GetEphemeralsRequest{Prefix: "/p"}, func() decodable { return new(wire.GetEphemeralsRequest) }},
	{&wire.MultiRequest{Ops: []wire.MultiOp{
		{Op: wire.OpCreate, Path: "/a", Create: create},
		{Op: wire.OpSetData, Path: "/a", Data: []byte("y"), Version: 1},
		{Op: wire.OpCheck, Path: "/a", Version: 2},
		{Op: wire.OpDelete, Path: "/a", Version: -1},
	}}, func() decodable { return new(wire.MultiRequest) }},
	{&wire.MultiRequest{Ops: []wire.MultiOp{{Op: wire.OpGetData, Path: "/a"}, {Op: wire.OpGetChildren, Path: "/b", Watch: true}}}, func() decodable { return new(wire.MultiRequest) }},
	{&wire.MultiResponse{Results: []wire.MultiResult{
		{Op: wire.OpCreate, Path: "/a"}, {Op: wire.OpCreate2, Path: "/b", Stat: stat}, {Op: wire.OpSetData, Stat: stat},
		{Op: wire.OpDelete}, {Op: wire.OpCheck}, {Op: wire.OpError, Err: wire.NoNode},
		{Op: wire.OpGetData, Data: []byte("d"), Stat: stat}, {Op: wire.OpGetChildren, Children: []string{"c"}},
	}}, func() decodable { return new(wire.MultiResponse) }},
	{&wire.PathResponse{Path: "/p"}, func() decodable { return new(wire.PathResponse) }},
	{&wire.PathStatResponse{Path: "/p", Stat: stat}, func() decodable { return new(wire.PathStatResponse) }},
	{&wire.DataResponse{Stat: stat}, func() decodable { return new(wire.DataResponse) }},
	{&wire.DataResponse{Data: []byte{}, Stat: stat}, func() decodable { return new(wire.DataResponse) }},
	{&wire.StringsResponse{Strings: []string{"", "b"}}, func() decodable { return new(wire.StringsResponse) }},
	{&wire.ChildrenStatResponse{Children: []string{"a"}, Stat: stat}, func() decodable { return new(wire.ChildrenStatResponse) }},
	{&wire.ACLResponse{ACL: acls, Stat: stat}, func() decodable { return new(wire.ACLResponse) }},
	{&wire.IntResponse{N: -3}, func() decodable { return new(wire.IntResponse) }},
	{&wire.WhoAmIResponse{IDs: []wire.ID{{Scheme: "ip", ID: "127.0.0.1"}}}, func() decodable { return new(wire.WhoAmIResponse) }},
}

func TestRecords_ThereAndBack_AreUnchanged(t *testing.T) {
	for _, rec := range records {
		body := wire.Frame(rec.full)[4:]
		d := wire.NewDecoder(body)
		got := rec.empty()
		got.Decode(d)
		require.NoError(t, d.Err(), "%T", got)
		require.Empty(t, d.Rest(), "%T", got)
		require.Equal(t, rec.full, got)
	}
}

func TestRecords_CutShort_FailAndAreNotHalfFilled(t *testing.T) {
	for _, rec := range records {
		body := wire.Frame(rec.full)[4:]
		for n := range body {
			d := wire.NewDecoder(body[:n])
			got := rec.empty()
			got.Decode(d)
			if _, ok := got.(*wire.ConnectRequest); ok && d.Err() == nil {
				continue // the readOnly byte is optional
			}
			if _, ok := got.(*wire.ConnectResponse); ok && d.Err() == nil {
				continue
			}
			require.ErrorIs(t, d.Err(), wire.ErrMalformed, "%T cut to %d of %d bytes", got, n, len(body))
		}
	}
}

func TestDecoder_CountBeyondTheBuffer_AllocatesNothingForIt(t *testing.T) {
	body := []byte{0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0}
	allocated := testing.AllocsPerRun(10, func() {
		d := wire.NewDecoder(body)
		d.Strings()
		if d.Err() == nil {
			t.Error("a vector of 2^31-1 strings in 4 bytes was accepted")
		}
	})
	require.Less(t, allocated, 10.0)
}

func TestDecoder_NullAndEmpty_Differ(t *testing.T) {
	d := wire.NewDecoder([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0})
	require.Nil(t, d.Buffer())
	require.Equal(t, []byte{}, d.Buffer())
	require.NoError(t, d.Err())
}

func TestDecoder_NullString_IsMalformedWhereOneIsNeeded(t *testing.T) {
	d := wire.NewDecoder([]byte{0xff, 0xff, 0xff, 0xff})
	_ = d.Text()
	require.ErrorIs(t, d.Err(), wire.ErrMalformed)
}

func TestMultiRequest_ReadsMixedWithWrites_IsMalformed(t *testing.T) {
	mixed := wire.MultiRequest{Ops: []wire.MultiOp{{Op: wire.OpGetData, Path: "/a"}, {Op: wire.OpDelete, Path: "/a"}}}
	d := wire.NewDecoder(wire.Frame(mixed)[4:])
	var got wire.MultiRequest
	got.Decode(d)
	require.ErrorIs(t, d.Err(), wire.ErrMalformed)
	require.Nil(t, got.Ops)
}

// The expected bytes come from java.util.Random itself.
func TestSessionPassword_IsJavas(t *testing.T) {
	for session, want := range map[int64]string{
		0x100000000000001: "054cc74a37327db215e702e20c73f005",
		1:                 "054cc74a37327db215e702e20c73f005",
		-5:                "d47144b5e45e45c49c3b7fdcd66257ba",
	} {
		require.Equal(t, want, hex.EncodeToString(wire.SessionPassword(session)))
	}
}

func TestReadFrame_AsSent(t *testing.T) {
	for _, size := range []int{0, 1, 4096, 4097, 100_000, wire.MaxFrame} {
		body := bytes.Repeat([]byte{7}, size)
		got, err := wire.ReadFrame(bytes.NewReader(wire.Frame(wire.Raw(body))), wire.MaxFrame)
		require.NoError(t, err)
		require.True(t, bytes.Equal(body, got), "%d bytes", size)
	}
}

func TestReadFrame_LengthOutOfRange_IsRefused(t *testing.T) {
	for _, head := range [][]byte{{0xff, 0xff, 0xff, 0xff}, {0, 0x10, 0, 0}, {0x7f, 0xff, 0xff, 0xff}} {
		_, err := wire.ReadFrame(bytes.NewReader(head), wire.MaxFrame)
		require.ErrorIs(t, err, wire.ErrFrameLength)
	}
}

func TestReadFrame_StreamEnds(t *testing.T) {
	_, err := wire.ReadFrame(bytes.NewReader(nil), wire.MaxFrame)
	require.ErrorIs(t, err, io.EOF)
	for _, part := range [][]byte{{0, 0}, {0, 0, 0, 2}, {0, 0, 0, 2, 1}} {
		_, err = wire.ReadFrame(bytes.NewReader(part), wire.MaxFrame)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	}
}

func TestNames(t *testing.T) {
	require.Equal(t, "createContainer", wire.OpCreateContainer.String())
	require.Equal(t, "op(77)", wire.Op(77).String())
	require.Equal(t, "zookeeper: no node (-101)", wire.NoNode.Error())
	require.Equal(t, "code(-99)", wire.Code(-99).String())
}

// FuzzDecode feeds the same bytes to every record, as a hostile client would. A record that decodes
// without an error must also survive being sent again.
func FuzzDecode(f *testing.F) {
	for _, rec := range records {
		f.Add(wire.Frame(rec.full)[4:])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, rec := range records {
			got := rec.empty()
			d := wire.NewDecoder(body)
			got.Decode(d)
			if d.Err() != nil {
				continue
			}
			again := rec.empty()
			d = wire.NewDecoder(wire.Frame(got)[4:])
			again.Decode(d)
			require.NoError(t, d.Err())
			require.Equal(t, got, again)
		}
	})
}

// FuzzReadFrame checks that reading any stream ends, and returns no more than has arrived.
func FuzzReadFrame(f *testing.F) {
	f.Add(wire.Frame(create))
	f.Add([]byte{0, 0x0f, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := bytes.NewReader(stream)
		for {
			body, err := wire.ReadFrame(r, wire.MaxFrame)
			if err != nil {
				return
			}
			require.LessOrEqual(t, len(body), len(stream))
		}
	})
}
