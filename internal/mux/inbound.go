package mux

import (
	"errors"
	"net"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/wire"
)

const replyHeader = 16 // bytes

// inbound splits the server's bytes into frames. Only the reading goroutine uses it. Until the
// handshake is complete, the client has one goroutine for both directions.
type inbound struct {
	conn    net.Conn
	clock   *clock.Clock
	traffic *traffic // notes that bytes arrived
	stream  wire.Stream
	now     clock.Instant // when bytes last arrived: the server replied before that
}

// next reads a frame. It replaces a response that is too long by an error response, and the
// connection continues. So the caller gets the error, and the client need not reconnect and receive
// the same long response again.
func (in *inbound) next() ([]byte, error) {
	for {
		f, err := in.stream.Next()
		if f != nil || err != nil && !errors.Is(err, wire.ErrFrameTooLong) {
			return f, err
		}
		if err != nil {
			if head := in.stream.Skip(replyHeader); head != nil {
				var h wire.ReplyHeader
				h.Decode(wire.NewDecoder(head))
				h.Err = wire.ReplyTooLong
				return wire.Frame(h), nil
			}
		}
		n, err := in.stream.Fill(in.conn)
		if n > 0 {
			in.now = in.clock.Now()
			in.traffic.noteHeard(in.now)
		} else if err != nil {
			return nil, err
		}
	}
}
