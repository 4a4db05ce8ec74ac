// Package grpcfence has the interceptors that send the sequencer of a lock's hold with a gRPC call, and those that refuse a call
// whose hold is over.
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

// UnaryClient sends the sequencer that find finds in a call's context. Where it returns false, the call goes out as it is. A sequencer that
// metadata cannot carry is an InvalidArgument, and nothing is sent.
func UnaryClient(find func(context.Context) (string, bool)) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		ctx, err := outgoing(ctx, find)
		if err != nil {
			return err
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}
}

// StreamClient is [UnaryClient] for streams. The sequencer is that of the stream's beginning.
func StreamClient(find func(context.Context) (string, bool)) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		ctx, err := outgoing(ctx, find)
		if err != nil {
			return nil, err
		}
		return open(ctx, desc, cc, method, opts...)
	}
}

// outgoing returns the context of a call with its sequencer, in place of one that was passed on.
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

// LockOf returns the path of the lock under which a call must come, and false for one that needs no lock. The request is nil for a
// stream.
type LockOf func(ctx context.Context, fullMethod string, req any) (path string, guarded bool)

// UnaryServer has the gate decide on calls. One that is refused does not reach its handler; its status says why:
//
//	FailedPrecondition  it is late: the message has its token and the one seen before, or says why its hold is over
//	InvalidArgument     it has no sequencer, or more than one, rubbish or another lock's
//	Unavailable         nobody knows whether it is late: the store or the check failed, or Memory is full
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

// StreamServer is [UnaryServer] for streams. The gate decides when a stream begins, on each message, and at the end of the client's
// messages, before the handler has it: a stream may last longer than the hold under which it began. A handler that writes at another time
// asks the gate itself, by [Admit].
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

// Admit has the gate decide on a call again, for a handler that is about to write: work that takes a while may last longer than the hold.
// The context is the call's. The error is that of [UnaryServer], for the handler to return. A call that no gate has admitted is an
// Internal, also if it needs no lock.
func Admit(ctx context.Context) error {
	a, found := ctx.Value(admission{}).(admission)
	if !found {
		return status.Error(codes.Internal, "fence: no gate has admitted this call; have UnaryServer or StreamServer guard it")
	}
	return a.ask(ctx)
}

// admission is what a gate was asked about. The zero value is its key in a call's context.
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

// RecvMsg receives a message, or the end of the client's messages, or refuses it. At the end, too, handlers write.
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

// refusal returns the status for an error of the gate. What went wrong in the store or the check is not the client's matter.
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
