package grpcfence_test

// These tests attack the interceptors with calls and streams over a connection in memory: late
// ones, calls without a sequencer, streams that outlive their hold.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/zklock/zklock/contrib/grpcfence"
	"github.com/zklock/zklock/fence"
)

const (
	write  = "/reports.Reports/Write"  // needs /locks/ and the report's name
	upload = "/reports.Reports/Upload" // a stream, needs /locks/a
	save   = "/reports.Reports/Save"   // a stream that is written when it ends, needs /locks/a
	watch  = "/reports.Reports/Watch"  // a stream that is written while the client is silent, needs /locks/a
	slow   = "/reports.Reports/Slow"   // is written after a while, needs /locks/a
	read   = "/reports.Reports/Read"   // needs no lock
	follow = "/reports.Reports/Follow" // a stream that needs no lock
)

// reports is the service, which counts the calls that reach its handlers. Each call returns one
// message.
type reports struct {
	got   []string
	pause func() // in the middle of a long operation
}

func (r *reports) call(_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
	in := new(wrapperspb.StringValue)
	if err := decode(in); err != nil {
		return nil, err
	}
	method, _ := grpc.Method(ctx)
	return intercept(ctx, in, &grpc.UnaryServerInfo{Server: r, FullMethod: method}, func(ctx context.Context, req any) (any, error) {
		if method == slow {
			r.pause()
			if err := grpcfence.Admit(ctx); err != nil {
				return nil, err
			}
		}
		r.got = append(r.got, req.(*wrapperspb.StringValue).Value)
		return req, nil
	})
}

func (r *reports) stream(_ any, ss grpc.ServerStream) error {
	for {
		in := new(wrapperspb.StringValue)
		if err := ss.RecvMsg(in); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		r.got = append(r.got, in.Value)
		if err := ss.SendMsg(in); err != nil {
			return err
		}
	}
}

// save writes the messages when the client has sent all of them.
func (r *reports) save(_ any, ss grpc.ServerStream) error {
	var all []string
	for {
		in := new(wrapperspb.StringValue)
		if err := ss.RecvMsg(in); err == io.EOF { // as the code that protoc writes compares it
			r.got = append(r.got, all...)
			return ss.SendMsg(in)
		} else if err != nil {
			return err
		}
		all = append(all, in.Value)
		r.pause()
	}
}

// follow sends three messages for one, and calls Admit before each.
func (r *reports) follow(_ any, ss grpc.ServerStream) error {
	in := new(wrapperspb.StringValue)
	if err := ss.RecvMsg(in); err != nil {
		return err
	}
	for range 3 {
		if err := grpcfence.Admit(ss.Context()); err != nil {
			return err
		}
		r.got = append(r.got, in.Value)
		if err := ss.SendMsg(in); err != nil {
			return err
		}
		r.pause()
	}
	return nil
}

// parse parses the tests' sequencers: "exclusive 17 /locks/a".
func parse(text string) (c fence.Claim, err error) {
	var mode string
	if _, err = fmt.Sscanf(text, "%s %d %s", &mode, &c.Token, &c.Resource); err != nil {
		return c, fmt.Errorf("rubbish: %q", text)
	}
	c.Shared = mode == "shared"
	return c, nil
}

type sequencerKey struct{}

func with(t *testing.T, text string) context.Context {
	return context.WithValue(t.Context(), sequencerKey{}, text)
}

func find(ctx context.Context) (string, bool) {
	text, ok := ctx.Value(sequencerKey{}).(string)
	return text, ok
}

func lockOf(_ context.Context, method string, req any) (string, bool) {
	switch method {
	case write:
		return "/locks/" + req.(*wrapperspb.StringValue).Value, true
	case upload, save, slow, watch:
		return "/locks/a", true
	}
	return "", false
}

// serve starts the service behind a gate, and returns a connection whose client has the
// interceptors.
func serve(t *testing.T, store fence.Store) (*reports, *grpc.ClientConn) {
	t.Helper()
	gate := &fence.Gate{Guard: fence.NewGuard(store), Parse: parse}
	srv := grpc.NewServer(grpc.UnaryInterceptor(grpcfence.UnaryServer(gate, lockOf)), grpc.StreamInterceptor(grpcfence.StreamServer(gate, lockOf)))
	r := &reports{}
	srv.RegisterService(&grpc.ServiceDesc{ServiceName: "reports.Reports", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Write", Handler: r.call}, {MethodName: "Read", Handler: r.call}, {MethodName: "Slow", Handler: r.call}},
		Streams: []grpc.StreamDesc{
			{StreamName: "Upload", Handler: r.stream, ClientStreams: true, ServerStreams: true},
			{StreamName: "Save", Handler: r.save, ClientStreams: true},
			{StreamName: "Watch", Handler: r.follow, ServerStreams: true},
			{StreamName: "Follow", Handler: r.stream, ClientStreams: true, ServerStreams: true},
		},
	}, r)
	l := bufconn.Listen(1 << 16)
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
		grpc.WithUnaryInterceptor(grpcfence.UnaryClient(find)), grpc.WithStreamInterceptor(grpcfence.StreamClient(find)))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		srv.Stop()
		require.NoError(t, <-ended)
	})
	return r, conn
}

func call(conn *grpc.ClientConn, ctx context.Context, method, report string) error {
	return conn.Invoke(ctx, method, wrapperspb.String(report), new(wrapperspb.StringValue))
}

func wantStatus(t *testing.T, err error, code codes.Code, says string) {
	t.Helper()
	require.Equal(t, code, status.Code(err), "%v", err)
	if code != codes.OK {
		require.Equal(t, says, status.Convert(err).Message())
	}
}

func TestUnary_LateOnesAreRefused(t *testing.T) {
	r, conn := serve(t, fence.NewMemory(1))
	for _, row := range []struct {
		sequencer, method, report string
		code                      codes.Code
		says                      string
	}{
		{"exclusive 17 /locks/a", write, "a", codes.OK, ""},
		{"exclusive 23 /locks/a", write, "a", codes.OK, ""},
		{"exclusive 23 /locks/a", write, "a", codes.OK, ""},
		{"exclusive 17 /locks/a", write, "a", codes.FailedPrecondition, "fence: stale: token 17 of /locks/a comes after token 23"},
		{"exclusive 99 /locks/b", write, "a", codes.InvalidArgument, "fence: no such sequencer: it is of /locks/b, and /locks/a is the lock to hold"},
		{"exclusive 99 /locks/b", write, "b", codes.Unavailable, "fence: no room for the marks of another resource"},
		{"nonsense", write, "a", codes.InvalidArgument, `fence: no such sequencer: rubbish: "nonsense"`},
		{"exclusive 17 /locks/ä", write, "ä", codes.InvalidArgument, `fence: no such sequencer: a header cannot carry "exclusive 17 /locks/ä"`},
		{"exclusive 17 /locks/a", read, "a", codes.OK, ""},
	} {
		r.got = nil
		wantStatus(t, call(conn, with(t, row.sequencer), row.method, row.report), row.code, row.says)
		require.Equal(t, row.code == codes.OK, len(r.got) == 1, "what reached the handler")
	}
	r.got = nil
	wantStatus(t, call(conn, t.Context(), write, "a"), codes.InvalidArgument, "fence: no sequencer: hold /locks/a, and send its sequencer")
	require.Empty(t, r.got)
	require.NoError(t, call(conn, t.Context(), read, "a"))
}

// A server that forwards its caller's metadata sends its own hold's sequencer, and no other.
func TestUnary_ReplacesWhatWasPassedOn(t *testing.T) {
	_, conn := serve(t, fence.NewMemory(1))
	md := metadata.Pairs(grpcfence.Key, "exclusive 99 /locks/z")
	ctx := metadata.NewOutgoingContext(with(t, "exclusive 17 /locks/a"), md)
	require.NoError(t, call(conn, ctx, write, "a"))
	require.Equal(t, metadata.Pairs(grpcfence.Key, "exclusive 99 /locks/z"), md)
}

type broken struct{ fence.Store }

func (broken) Load(context.Context, string) (fence.Marks, error) {
	return fence.Marks{}, errors.New("password=secret: no route to host")
}

func TestUnary_StoreFails_Unavailable(t *testing.T) {
	r, conn := serve(t, broken{})
	wantStatus(t, call(conn, with(t, "exclusive 17 /locks/a"), write, "a"), codes.Unavailable, "fence: cannot tell whether this request is late")
	require.Empty(t, r.got)
}

// open opens a stream; send sends a message over it and waits for the reply.
func open(t *testing.T, conn *grpc.ClientConn, ctx context.Context, method string) grpc.ClientStream {
	t.Helper()
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	require.NoError(t, err)
	return s
}

func send(s grpc.ClientStream, report string) error {
	if err := s.SendMsg(wrapperspb.String(report)); err != nil && !errors.Is(err, io.EOF) { // then RecvMsg returns the reason
		return err
	}
	return s.RecvMsg(new(wrapperspb.StringValue))
}

func TestStream_LateOnesAreRefused(t *testing.T) {
	r, conn := serve(t, fence.NewMemory(1))
	require.NoError(t, call(conn, with(t, "exclusive 23 /locks/a"), write, "a"))
	r.got = nil
	wantStatus(t, send(open(t, conn, with(t, "exclusive 17 /locks/a"), upload), "1"), codes.FailedPrecondition,
		"fence: stale: token 17 of /locks/a comes after token 23")
	wantStatus(t, send(open(t, conn, t.Context(), upload), "1"), codes.InvalidArgument, "fence: no sequencer: hold /locks/a, and send its sequencer")
	require.Empty(t, r.got)
	s := open(t, conn, with(t, "exclusive 17 /locks/a"), follow)
	require.NoError(t, send(s, "1"), "needs no lock")
	require.NoError(t, s.CloseSend())
	require.ErrorIs(t, s.RecvMsg(new(wrapperspb.StringValue)), io.EOF)
	_, err := conn.NewStream(with(t, ""), &grpc.StreamDesc{ClientStreams: true}, upload)
	require.Equal(t, codes.InvalidArgument, status.Code(err))
}

// A stream that outlives its hold ends at its next message, which does not reach the handler.
func TestStream_OutlivesItsHold_NextMessageIsRefused(t *testing.T) {
	r, conn := serve(t, fence.NewMemory(1))
	late := open(t, conn, with(t, "exclusive 17 /locks/a"), upload)
	require.NoError(t, send(late, "A's first"))
	next := open(t, conn, with(t, "exclusive 23 /locks/a"), upload)
	require.NoError(t, send(next, "B's first"))
	wantStatus(t, send(late, "A's second"), codes.FailedPrecondition, "fence: stale: token 17 of /locks/a comes after token 23")
	require.NoError(t, send(next, "B's second"))
	require.Equal(t, []string{"A's first", "B's first", "B's second"}, r.got)
	require.NoError(t, next.CloseSend())
	require.ErrorIs(t, next.RecvMsg(new(wrapperspb.StringValue)), io.EOF)
}

// A sends and pauses, B uploads, A ends its stream: the handler, which would write at the end, does
// not see the end.
func TestStream_OutlivesItsHold_EndIsRefused(t *testing.T) {
	r, conn := serve(t, fence.NewMemory(1))
	const a, b = "exclusive 17 /locks/a", "exclusive 23 /locks/a"
	upload := func(text string) error {
		s, err := conn.NewStream(with(t, text), &grpc.StreamDesc{ClientStreams: true}, save)
		require.NoError(t, err)
		require.NoError(t, s.SendMsg(wrapperspb.String(text)))
		require.NoError(t, s.CloseSend())
		return s.RecvMsg(new(wrapperspb.StringValue))
	}
	r.pause = func() { // the handler has A's message
		r.pause = func() {}
		require.NoError(t, upload(b))
	}
	wantStatus(t, upload(a), codes.FailedPrecondition, "fence: stale: token 17 of /locks/a comes after token 23")
	require.Equal(t, []string{b}, r.got)
}

// A handler that writes when nothing comes from the client asks the gate.
func TestAdmit_OutlivesItsHold_HandlerIsNotified(t *testing.T) {
	const a, b, late = "exclusive 17 /locks/a", "exclusive 23 /locks/a", "fence: stale: token 17 of /locks/a comes after token 23"
	t.Run("a call", func(t *testing.T) {
		r, conn := serve(t, fence.NewMemory(1))
		r.pause = func() {}
		require.NoError(t, call(conn, with(t, a), slow, "A's first"))
		r.pause = func() { require.NoError(t, call(conn, with(t, b), write, "a")) }
		wantStatus(t, call(conn, with(t, a), slow, "A's second"), codes.FailedPrecondition, late)
		require.Equal(t, []string{"A's first", "a"}, r.got)
	})
	t.Run("a stream", func(t *testing.T) {
		r, conn := serve(t, fence.NewMemory(1))
		r.pause = func() { require.NoError(t, call(conn, with(t, b), write, "a")) }
		s, err := conn.NewStream(with(t, a), &grpc.StreamDesc{ServerStreams: true}, watch)
		require.NoError(t, err)
		require.NoError(t, s.SendMsg(wrapperspb.String("A's")))
		require.NoError(t, s.CloseSend())
		require.NoError(t, s.RecvMsg(new(wrapperspb.StringValue)))
		wantStatus(t, s.RecvMsg(new(wrapperspb.StringValue)), codes.FailedPrecondition, late)
		require.Equal(t, []string{"A's", "a"}, r.got)
	})
}

// A handler without a gate gets an error, and writes nothing.
func TestAdmit_NoGate_IsRefused(t *testing.T) {
	require.Equal(t, codes.Internal, status.Code(grpcfence.Admit(t.Context())))
}
