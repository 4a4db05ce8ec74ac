package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrMalformed is wrapped by every error of a Decoder. A real server replies to a malformed record
// with [MarshallingError].
var ErrMalformed = errors.New("wire: malformed record")

// Decoder decodes jute's primitive types from a buffer. After its first failure, every method
// returns a zero value, and Err returns the failure. So a record can be decoded field by field and
// checked once.
type Decoder struct {
	buf []byte
	err error
}

// NewDecoder returns a decoder of b. Its results never alias b.
func NewDecoder(b []byte) *Decoder { return &Decoder{buf: b} }

// Err returns the first failure, which wraps [ErrMalformed], or nil.
func (d *Decoder) Err() error { return d.err }

// Rest returns the bytes that have not been decoded.
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

// Int32 decodes an int.
func (d *Decoder) Int32() int32 {
	b := d.take(4)
	if b == nil {
		return 0
	}
	return int32(binary.BigEndian.Uint32(b))
}

// Int64 decodes a long.
func (d *Decoder) Int64() int64 {
	b := d.take(8)
	if b == nil {
		return 0
	}
	return int64(binary.BigEndian.Uint64(b))
}

// Bool decodes a boolean.
func (d *Decoder) Bool() bool {
	b := d.take(1)
	return b != nil && b[0] != 0
}

// Buffer decodes a buffer. A null buffer is nil; an empty one is not.
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

// Text decodes a string that must not be null. (It is not called String, because fmt would call
// that to print a decoder.)
func (d *Decoder) Text() string {
	s, ok := d.NullableString()
	if !ok {
		d.fail("null string")
	}
	return s
}

// NullableString decodes a string, and reports whether it was not null.
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

// count decodes a vector's length. A negative one counts 0, as in Java; -1 is a null vector. No
// item is shorter than min bytes, so count rejects a length that the rest of the buffer cannot
// hold, before any memory is allocated for it.
func (d *Decoder) count(min int) int {
	n := d.Int32()
	if d.err != nil || n < 0 {
		return 0
	}
	if int(n) > len(d.buf)/min {
		d.fail("vector of %d items in %d bytes", n, len(d.buf))
		return 0
	}
	return int(n)
}

// Strings decodes a vector of strings; null and empty vectors give the same result. The strings
// share one copy of the buffer: clone a string that outlives the rest.
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
