// Package grpcfence provides gRPC interceptors that send the sequencer of a lock's hold with a
// call, and interceptors that reject a call whose hold has ended.
package grpcfence

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/zklock/zklock/fence"
)

// Key is the key of the metadata that carries a sequencer: [fence.Header].
const Key = "lock-sequencer"

// UnaryClient sends the sequencer that find returns for a call's context. If find returns false,
// the call is sent unchanged. If metadata cannot carry the sequencer, the call fails with
// InvalidArgument, and nothing is sent.
func UnaryClient(find func(context.Context) (string, bool)) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		ctx, err := outgoing(ctx, find)
		if err != nil {
			return err
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}
}

// StreamClient is [UnaryClient] for streams. It sends the sequencer that is valid when the stream
// begins.
func StreamClient(find func(context.Context) (string, bool)) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		ctx, err := outgoing(ctx, find)
		if err != nil {
			return nil, err
		}
		return open(ctx, desc, cc, method, opts...)
	}
}

// outgoing returns the context of a call with its sequencer, which replaces a forwarded one.
func outgoing(ctx context.Context, find func(context.Context) (string, bool)) (context.Context, error) {
	text, found := find(ctx)
	if !found {
		return ctx, nil
	}
	value, err := fence.HeaderValue(text)
	if err != nil {
		return nil, refusal(err)
	}
	md, _ := metadata.FromOutgoingContext(ctx) // a copy
	if md == nil {
		md = metadata.MD{}
	}
	md.Set(Key, value)
	return metadata.NewOutgoingContext(ctx, md), nil
}

// LockOf returns the path of the lock that a call needs, and false for a call that needs none. The
// request is nil for a stream.
type LockOf func(ctx context.Context, fullMethod string, req any) (path string, guarded bool)

// UnaryServer has the gate decide on calls. A rejected call does not reach its handler. Its status
// gives the reason:
//
//	FailedPrecondition  the call is late: the message has its token and the larger one seen
//	                    before, or the reason why its hold has ended
//	InvalidArgument     it has no sequencer, several, an invalid one, or another lock's
//	Unavailable         unknown: the store or the check failed, or Memory is full
func UnaryServer(gate *fence.Gate, lock LockOf) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if path, guarded := lock(ctx, info.FullMethod, req); guarded {
			a := admission{gate, path}
			if err := a.ask(ctx); err != nil {
				return nil, err
			}
			ctx = context.WithValue(ctx, admission{}, a)
		}
		return handle(ctx, req)
	}
}

// StreamServer is [UnaryServer] for streams. A stream may outlast the hold under which it began, so
// the gate decides when the stream begins, on each message, and at the end of the client's
// messages, before the handler receives it. A handler that writes at another time calls [Admit]
// first.
func StreamServer(gate *fence.Gate, lock LockOf) grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		path, guarded := lock(ss.Context(), info.FullMethod, nil)
		if !guarded {
			return handle(srv, ss)
		}
		a := admission{gate, path}
		if err := a.ask(ss.Context()); err != nil {
			return err
		}
		return handle(srv, &stream{ss, context.WithValue(ss.Context(), admission{}, a)})
	}
}

// Admit has the gate decide on a call again. A handler calls it before it writes, if its work may
// outlast the hold. The context is the call's, and the error is a status as from [UnaryServer], for
// the handler to return. A call that no gate has admitted gets Internal, even if it needs no lock.
func Admit(ctx context.Context) error {
	a, found := ctx.Value(admission{}).(admission)
	if !found {
		return status.Error(codes.Internal, "fence: no gate has admitted this call; have UnaryServer or StreamServer guard it")
	}
	return a.ask(ctx)
}

// admission is the gate's input for a call. The zero value is its key in the call's context.
type admission struct {
	gate *fence.Gate
	lock string
}

func (a admission) ask(ctx context.Context) error {
	return refusal(a.gate.Admit(ctx, a.lock, metadata.ValueFromIncomingContext(ctx, Key)))
}

type stream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context returns the stream's context, for Admit.
func (s *stream) Context() context.Context { return s.ctx }

// RecvMsg receives a message or the end of the client's messages, unless the gate rejects it.
// Handlers may write at the end, too.
func (s *stream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if late := Admit(s.ctx); late != nil {
		return late
	}
	return err
}

// refusal returns the status for an error of the gate. It hides the details of an error in the
// store or the check from the client.
func refusal(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fence.ErrStale):
		return status.Error(codes.FailedPrecondition, err.Error())
	case errors.Is(err, fence.ErrMissing), errors.Is(err, fence.ErrInvalid):
		return status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, fence.ErrFull):
		return status.Error(codes.Unavailable, fence.ErrFull.Error())
	}
	return status.Error(codes.Unavailable, "fence: cannot tell whether this request is late")
}
