package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrMalformed is what every failure to decode wraps. A real server answers it with [MarshallingError].
var ErrMalformed = errors.New("wire: malformed record")

// Decoder takes jute's primitive types off a buffer. Its first failure sticks: everything after it returns
// zero values, and Err tells. So a record can be decoded field by field and checked once.
type Decoder struct {
	buf []byte
	err error
}

// NewDecoder returns a decoder of b. What it returns never aliases b.
func NewDecoder(b []byte) *Decoder { return &Decoder{buf: b} }

// Err returns the first failure, which wraps [ErrMalformed], or nil.
func (d *Decoder) Err() error { return d.err }

// Rest returns the bytes not decoded yet.
func (d *Decoder) Rest() []byte { return d.buf }

func (d *Decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
		d.buf = nil
	}
}

func (d *Decoder) take(n int) []byte {
	if d.err != nil {
		return nil
	}
	if n < 0 || n > len(d.buf) {
		d.fail("want %d bytes, %d left", n, len(d.buf))
		return nil
	}
	b := d.buf[:n]
	d.buf = d.buf[n:]
	return b
}

// Int32 takes an int.
func (d *Decoder) Int32() int32 {
	b := d.take(4)
	if b == nil {
		return 0
	}
	return int32(binary.BigEndian.Uint32(b))
}

// Int64 takes a long.
func (d *Decoder) Int64() int64 {
	b := d.take(8)
	if b == nil {
		return 0
	}
	return int64(binary.BigEndian.Uint64(b))
}

// Bool takes a boolean.
func (d *Decoder) Bool() bool {
	b := d.take(1)
	return b != nil && b[0] != 0
}

// Buffer takes a buffer; a null one is nil, an empty one is not.
func (d *Decoder) Buffer() []byte {
	n := d.Int32()
	if d.err != nil || n == -1 {
		return nil
	}
	b := d.take(int(n))
	if d.err != nil {
		return nil
	}
	return append(make([]byte, 0, len(b)), b...)
}

// Text takes a string that must not be null. (A method String would be what fmt calls to print a decoder.)
func (d *Decoder) Text() string {
	s, ok := d.NullableString()
	if !ok {
		d.fail("null string")
	}
	return s
}

// NullableString takes a string and says whether it was there.
func (d *Decoder) NullableString() (s string, ok bool) {
	n := d.Int32()
	if d.err != nil || n == -1 {
		return "", false
	}
	b := d.take(int(n))
	return string(b), d.err == nil
}

// nullAhead reports whether the next vector or buffer is null.
func (d *Decoder) nullAhead() bool { return bytes.HasPrefix(d.buf, []byte{0xff, 0xff, 0xff, 0xff}) }

// count takes a vector's length. A null vector counts 0. No item is shorter than min bytes, so a count the
// rest of the buffer cannot hold is refused before anything is allocated for it.
func (d *Decoder) count(min int) int {
	n := d.Int32()
	if d.err != nil || n == -1 {
		return 0
	}
	if n < 0 || int(n) > len(d.buf)/min {
		d.fail("vector of %d items in %d bytes", n, len(d.buf))
		return 0
	}
	return int(n)
}

// Strings takes a vector of strings; null and empty both come out empty. The strings share one copy of the buffer: to keep one
// of many, clone it.
func (d *Decoder) Strings() []string {
	n := d.count(4)
	if n == 0 {
		return nil
	}
	v, all := make([]string, 0, n), string(d.buf)
	for range n {
		length := int(d.Int32())
		if length == -1 {
			d.fail("null string")
		}
		d.take(length)
		if d.err != nil {
			return nil
		}
		end := len(all) - len(d.buf)
		v = append(v, all[end-length:end])
	}
	return v
}
