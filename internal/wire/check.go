package wire

// CheckResponse reports whether body is the whole body of a successful response to op. It is for a client whose decoder makes room for what a count
// claims before it looks whether the bytes are there. request is the length of the request's body in bytes, which bounds the operations
// of a multi. Responses without a count are not looked at.
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

// notNull fails if a vector comes next that is null: some decoders read its −1 as a count without a sign.
func (d *Decoder) notNull() {
	if n := (&Decoder{buf: d.buf}).Int32(); n < 0 {
		d.fail("null vector")
	}
}
