package wire

// These tests split a stream of frames anywhere.

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// However a stream is split, the frames are the same.
func TestStream(t *testing.T) {
	bodies := [][]byte{{}, {1}, bytes.Repeat([]byte{2}, 300), {}, bytes.Repeat([]byte{3}, 255), bytes.Repeat([]byte{4}, 256), bytes.Repeat([]byte{5}, 100_000), {6, 7}}
	var all []byte
	for _, b := range bodies {
		all = append(all, Frame(Raw(b))...)
	}
	check := func(t *testing.T, feed func(s *Stream) bool) {
		var s Stream
		for i := 0; i < len(bodies); {
			f, err := s.Next()
			require.NoError(t, err)
			if f == nil {
				require.True(t, feed(&s), "the stream ended after %d frames", i)
				continue
			}
			require.True(t, bytes.Equal(Frame(Raw(bodies[i])), f), "frame %d", i)
			i++
		}
		require.Equal(t, s.from, s.to, "no byte is left")
		s.Add([]byte{0})
		require.LessOrEqual(t, len(s.buf), streamKeep, "I7: a long frame's buffer is not kept")
	}
	for _, chunk := range []int{1, 2, 3, 4, 5, 7, 64, 4096, len(all)} {
		t.Run(fmt.Sprintf("added in chunks of %d", chunk), func(t *testing.T) {
			left := all
			check(t, func(s *Stream) bool {
				n := min(chunk, len(left))
				s.Add(left[:n])
				left = left[n:]
				return n > 0
			})
		})
	}
	for name, r := range map[string]io.Reader{"one byte": iotest.OneByteReader(bytes.NewReader(all)), "halves": iotest.HalfReader(bytes.NewReader(all)), "all": bytes.NewReader(all)} {
		t.Run("filled: "+name, func(t *testing.T) {
			check(t, func(s *Stream) bool {
				n, _ := s.Fill(r)
				return n > 0
			})
		})
	}
}

// A frame may be modified in place, without an effect on the next frame.
func TestStream_FramesCanBeChanged(t *testing.T) {
	var s Stream
	s.Add(append(Frame(Raw("first")), Frame(Raw("second"))...))
	f, err := s.Next()
	require.NoError(t, err)
	clear(f)
	_ = append(f, "written behind it"...)
	f, err = s.Next()
	require.NoError(t, err)
	require.Equal(t, Frame(Raw("second")), f)
}

// Memory is allocated for the bytes that arrive: a frame that claims a large length costs nothing
// until its bytes arrive.
func TestStream_BadLengths(t *testing.T) {
	s := Stream{Limit: 1 << 30}
	s.Add([]byte{0x3f, 0xff, 0xff, 0xff, 1})
	f, err := s.Next()
	require.NoError(t, err)
	require.Nil(t, f)
	require.LessOrEqual(t, len(s.buf), streamRoom)
	for _, length := range [][]byte{{0xff, 0xff, 0xff, 0xff}, {0x80, 0, 0, 0}, {0x40, 0, 0, 1}} {
		s = Stream{Limit: 1 << 30}
		s.Add(length)
		_, err := s.Next()
		require.ErrorIs(t, err, ErrFrameLength)
	}
}
