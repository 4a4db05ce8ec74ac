package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// MaxFrame is the longest frame a ZooKeeper server reads by default (jute.maxbuffer).
const MaxFrame = 0xfffff

// MaxHandshake is the longest frame, in bytes, that is read during a handshake. A connect response
// has 41 bytes. Tokens of SASL are longer, but Windows, for example, limits a Kerberos token to
// 48,000.
const MaxHandshake = 64 << 10

// ErrFrameLength is returned for a frame that claims a negative length or one over the limit. A real
// server closes the connection without an answer.
var ErrFrameLength = errors.New("wire: frame length out of range")

// ErrFrameTooLong is an ErrFrameLength of a frame that a Stream can Skip.
var ErrFrameTooLong = fmt.Errorf("%w: longer than the limit", ErrFrameLength)

// firstRead bounds what is allocated before any byte of a frame's body has come.
const firstRead = 4 << 10

// ReadFrame reads one frame and returns its body. It returns io.EOF when the stream ends before a frame
// begins and io.ErrUnexpectedEOF when it ends inside one.
func ReadFrame(r io.Reader, limit int) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	return ReadBody(r, head, limit)
}

// ReadBody reads the rest of a frame whose four bytes of length were already read.
//
// Memory follows the bytes that arrive, not the length that was claimed: a thousand connections that claim
// a megabyte each and send nothing cost a few kilobytes each.
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
