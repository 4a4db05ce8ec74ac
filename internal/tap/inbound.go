package tap

import (
	"errors"
	"net"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/wire"
)

const replyHeader = 16 // bytes

// inbound is what the server sends, cut into frames. Only the goroutine that reads uses it. Before the handshake is done, the
// client has one goroutine for both directions.
type inbound struct {
	conn    net.Conn
	clock   *clock.Clock
	traffic *traffic // notes that bytes came
	stream  wire.Stream
	now     clock.Instant // when bytes last came: what they answer was answered by then
}

// next reads a frame. In place of an answer that is too long it returns one that says so, and the connection goes on: the caller gets
// the error, and the client need not connect again, and again be answered with so much.
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
				h.Err = wire.AnswerTooLong
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
