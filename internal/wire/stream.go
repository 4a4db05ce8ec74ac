package wire

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
)

// Stream splits bytes that arrive in pieces into frames. The zero value is ready, and has no limit
// except the format's, 2 GB. It allocates memory for the bytes that arrive, not for the length that
// a frame claims.
type Stream struct {
	Limit    int // the longest body, in bytes; 0: any
	buf      []byte
	from, to int   // the bytes of buf that were added and not yet returned
	skip     int64 // bytes of a skipped frame that have not arrived yet
}

const (
	streamRoom = 16 << 10 // room for one read
	streamKeep = 64 << 10 // a larger buffer is dropped when it is empty
)

// Add adds bytes that have arrived.
func (s *Stream) Add(p []byte) {
	s.makeRoom(len(p))
	s.to += copy(s.buf[s.to:], p)
}

// Fill adds the bytes of one Read.
func (s *Stream) Fill(r io.Reader) (n int, err error) {
	s.makeRoom(streamRoom)
	n, err = r.Read(s.buf[s.to:])
	s.to += n
	return n, err
}

func (s *Stream) makeRoom(n int) {
	if s.from == s.to {
		s.from, s.to = 0, 0
		if len(s.buf) > streamKeep && n <= streamKeep {
			s.buf = nil
		}
	}
	if len(s.buf)-s.to >= n {
		return
	}
	left := s.to - s.from
	into := s.buf
	if len(s.buf)-left < n {
		into = make([]byte, max(2*len(s.buf), left+n))
	}
	copy(into, s.buf[s.from:s.to])
	s.buf, s.from, s.to = into, 0, left
}

// Skip drops the frame that Next has rejected with ErrFrameTooLong, and returns the first n bytes
// of its body. If these have not arrived yet, it returns nil and drops nothing.
func (s *Stream) Skip(n int) []byte {
	have := s.buf[s.from:s.to]
	if len(have) < 4+n {
		return nil
	}
	s.skip = 4 + int64(binary.BigEndian.Uint32(have))
	return slices.Clone(have[4 : 4+n])
}

// Next returns the next frame with its four bytes of length, or nil if the frame is not complete.
// The caller may modify the bytes, which are valid until the next Add or Fill.
func (s *Stream) Next() ([]byte, error) {
	left := min(s.skip, int64(s.to-s.from))
	s.skip, s.from = s.skip-left, s.from+int(left)
	have := s.buf[s.from:s.to]
	if len(have) < 4 {
		return nil, nil
	}
	n := int(int32(binary.BigEndian.Uint32(have)))
	switch {
	case n < 0:
		return nil, fmt.Errorf("%w: %d", ErrFrameLength, n)
	case s.Limit > 0 && n > s.Limit:
		return nil, fmt.Errorf("%w: %d", ErrFrameTooLong, n)
	}
	if len(have) < 4+n {
		return nil, nil
	}
	s.from += 4 + n
	return have[: 4+n : 4+n], nil
}
