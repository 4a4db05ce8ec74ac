package tap

import (
	"net"

	"github.com/zklock/zklock/internal/clock"
	"github.com/zklock/zklock/internal/wire"
)

// inbound is what the server sends, cut into frames. Only the goroutine that reads uses it. Before the handshake is done, the
// client has one goroutine for both directions.
type inbound struct {
	conn    net.Conn
	clock   *clock.Clock
	traffic *traffic // notes that bytes came
	stream  wire.Stream
	now     clock.Instant // when bytes last came: what they answer was answered by then
}

// next reads a frame.
func (in *inbound) next() ([]byte, error) {
	for {
		if f, err := in.stream.Next(); f != nil || err != nil {
			return f, err
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
