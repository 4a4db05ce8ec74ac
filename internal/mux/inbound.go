package mux

import (
	"errors"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/wire"
)

const replyHeader = 16 // bytes

// inbound has the server's bytes that nextFrame has not returned yet. Only the reading goroutine
// uses it. Until the handshake is complete, the client has one goroutine for both directions.
type inbound struct {
	stream wire.Stream
	now    clock.Instant // when bytes last arrived: the server replied before that
}

// nextFrame reads a frame. It replaces a response that is too long by an error response, and the
// connection continues. So the caller gets the error, and the client need not reconnect and receive
// the same long response again.
func (t *Mux) nextFrame() ([]byte, error) {
	for {
		f, err := t.in.stream.Next()
		if f != nil || err != nil && !errors.Is(err, wire.ErrFrameTooLong) {
			return f, err
		}
		if err != nil {
			if head := t.in.stream.Skip(replyHeader); head != nil {
				var h wire.ReplyHeader
				h.Decode(wire.NewDecoder(head))
				h.Err = wire.ReplyTooLong
				return wire.Frame(h), nil
			}
		}
		n, err := t.in.stream.Fill(t.Conn)
		if n > 0 {
			t.in.now = t.clock.Now()
			t.noteHeard(t.in.now)
		} else if err != nil {
			return nil, err
		}
	}
}
