package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// MaxFrame is the longest frame that a ZooKeeper server reads by default (jute.maxbuffer).
const MaxFrame = 0xfffff

// MaxHandshake is the longest frame, in bytes, that is read during a handshake. A connect response
// has 41 bytes. SASL tokens are longer, but Windows, for example, limits a Kerberos token to
// 48,000.
const MaxHandshake = 64 << 10

// ErrFrameLength is returned for a frame with a negative length or a length over the limit. A real
// server closes the connection without a reply.
var ErrFrameLength = errors.New("wire: frame length out of range")

// ErrFrameTooLong is the ErrFrameLength of a frame that a Stream can Skip.
var ErrFrameTooLong = fmt.Errorf("%w: longer than the limit", ErrFrameLength)

// firstRead bounds the memory that is allocated before the first byte of a frame's body has
// arrived.
const firstRead = 4 << 10

// ReadFrame reads one frame and returns its body. It returns io.EOF if the stream ends before a
// frame begins, and io.ErrUnexpectedEOF if it ends inside a frame.
func ReadFrame(r io.Reader, limit int) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	return ReadBody(r, head, limit)
}

// ReadBody reads the rest of a frame after its four bytes of length.
//
// It allocates memory for the bytes that arrive, not for the claimed length: a thousand connections
// that claim a megabyte each and send nothing cost a few kilobytes each.
func ReadBody(r io.Reader, head [4]byte, limit int) ([]byte, error) {
	n := int(int32(binary.BigEndian.Uint32(head[:])))
	if n < 0 || n > limit {
		return nil, fmt.Errorf("%w: %d, limit %d", ErrFrameLength, n, limit)
	}
	body := make([]byte, min(n, firstRead))
	for have := 0; ; {
		if _, err := io.ReadFull(r, body[have:]); err != nil {
			if errors.Is(err, io.EOF) && n > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		have = len(body)
		if have == n {
			return body, nil
		}
		grown := make([]byte, min(n, 2*have))
		copy(grown, body)
		body = grown
	}
}
