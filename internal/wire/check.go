package wire

// CheckResponse returns an error if body is not the body of a successful response to op. It
// protects decoders that allocate memory for a count before they check that the bytes exist.
// request is the length of the request in bytes, which bounds the number of results of a multi.
// CheckResponse does not check responses that contain no count.
func CheckResponse(op Op, request int, body []byte) error {
	d := NewDecoder(body)
	switch op {
	case OpGetData, OpReconfig:
		new(DataResponse).Decode(d)
	case OpGetChildren:
		d.notNull()
		new(StringsResponse).Decode(d)
	case OpGetChildren2:
		d.notNull()
		new(ChildrenStatResponse).Decode(d)
	case OpGetACL:
		d.notNull()
		new(ACLResponse).Decode(d)
	case OpMulti:
		d.MultiResults(request / multiHeaderSize)
	}
	return d.Err()
}

// notNull fails if the next vector is null, because some decoders read its −1 as an unsigned count.
func (d *Decoder) notNull() {
	if n := (&Decoder{buf: d.buf}).Int32(); n < 0 {
		d.fail("null vector")
	}
}
