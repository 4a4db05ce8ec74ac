package wire

import "encoding/binary"

// Record is a record that can be sent. Encode appends it to e.
type Record interface {
	Encode(e *Encoder)
}

// Encoder appends jute's primitive types to a buffer. The zero value is ready.
type Encoder struct {
	buf []byte
}

// Int32 appends an int.
func (e *Encoder) Int32(v int32) { e.buf = binary.BigEndian.AppendUint32(e.buf, uint32(v)) }

// Int64 appends a long.
func (e *Encoder) Int64(v int64) { e.buf = binary.BigEndian.AppendUint64(e.buf, uint64(v)) }

// Bool appends a boolean.
func (e *Encoder) Bool(v bool) {
	b := byte(0)
	if v {
		b = 1
	}
	e.buf = append(e.buf, b)
}

// String appends a string. An empty string is not null.
func (e *Encoder) String(s string) {
	e.Int32(int32(len(s)))
	e.buf = append(e.buf, s...)
}

// NullString appends jute's encoding of a null string.
func (e *Encoder) NullString() { e.Int32(-1) }

// Buffer appends a buffer. A nil buffer is sent as null, and decoded as nil.
func (e *Encoder) Buffer(b []byte) {
	if b == nil {
		e.Int32(-1)
		return
	}
	e.Int32(int32(len(b)))
	e.buf = append(e.buf, b...)
}

// Strings appends a vector of strings.
func (e *Encoder) Strings(v []string) {
	e.Int32(int32(len(v)))
	for _, s := range v {
		e.String(s)
	}
}

// Frame returns the records as one frame, including its length.
func Frame(records ...Record) []byte {
	e := Encoder{buf: make([]byte, 4, 128)}
	for _, r := range records {
		r.Encode(&e)
	}
	binary.BigEndian.PutUint32(e.buf, uint32(len(e.buf)-4))
	return e.buf
}

// EncodeRequest replaces the buffer's content by a request, as one frame. The xid, in the four
// bytes after the length, remains 0. EncodeRequest is generic so that the body need not be
// allocated.
func EncodeRequest[R Record](e *Encoder, op Op, body R) []byte {
	e.buf = binary.BigEndian.AppendUint32(make([]byte, 8, 192), uint32(op))
	body.Encode(e)
	binary.BigEndian.PutUint32(e.buf, uint32(len(e.buf)-4))
	return e.buf
}

// Raw is a record that is already encoded.
type Raw []byte

// Encode appends the bytes unchanged.
func (r Raw) Encode(e *Encoder) { e.buf = append(e.buf, r...) }
