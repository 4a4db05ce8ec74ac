package wire

// PathResponse is the response to create and sync. It has the same form as their path in a request.
type PathResponse = PathRequest

// PathStatResponse is the response to create2, createContainer and createTTL.
type PathStatResponse struct {
	Path string
	Stat Stat
}

func (r PathStatResponse) Encode(e *Encoder) {
	e.String(r.Path)
	r.Stat.Encode(e)
}

func (r *PathStatResponse) Decode(d *Decoder) {
	r.Path = d.Text()
	r.Stat.Decode(d)
}

// DataResponse is the response to getData.
type DataResponse struct {
	Data []byte
	Stat Stat
}

func (r DataResponse) Encode(e *Encoder) {
	e.Buffer(r.Data)
	r.Stat.Encode(e)
}

func (r *DataResponse) Decode(d *Decoder) {
	r.Data = d.Buffer()
	r.Stat.Decode(d)
}

// StringsResponse is the response to getChildren and getEphemerals.
type StringsResponse struct{ Strings []string }

func (r StringsResponse) Encode(e *Encoder) { e.Strings(r.Strings) }

func (r *StringsResponse) Decode(d *Decoder) { r.Strings = d.Strings() }

// ChildrenStatResponse is the response to getChildren2.
type ChildrenStatResponse struct {
	Children []string
	Stat     Stat
}

func (r ChildrenStatResponse) Encode(e *Encoder) {
	e.Strings(r.Children)
	r.Stat.Encode(e)
}

func (r *ChildrenStatResponse) Decode(d *Decoder) {
	r.Children = d.Strings()
	r.Stat.Decode(d)
}

// ACLResponse is the response to getACL.
type ACLResponse struct {
	ACL  []ACL
	Stat Stat
}

func (r ACLResponse) Encode(e *Encoder) {
	encodeACLs(e, r.ACL)
	r.Stat.Encode(e)
}

func (r *ACLResponse) Decode(d *Decoder) {
	r.ACL = decodeACLs(d)
	r.Stat.Decode(d)
}

// IntResponse is the response to getAllChildrenNumber, and, with 0, to addWatch.
type IntResponse struct{ N int32 }

func (r IntResponse) Encode(e *Encoder) { e.Int32(r.N) }

func (r *IntResponse) Decode(d *Decoder) { r.N = d.Int32() }

// WhoAmIResponse is the response to whoAmI: each identity of the connection, as scheme and user.
// The first is its address.
type WhoAmIResponse struct{ IDs []ID }

func (r WhoAmIResponse) Encode(e *Encoder) {
	e.Int32(int32(len(r.IDs)))
	for _, id := range r.IDs {
		e.String(id.Scheme)
		e.String(id.ID)
	}
}

func (r *WhoAmIResponse) Decode(d *Decoder) {
	n := d.count(8)
	r.IDs = nil
	for range n {
		r.IDs = append(r.IDs, ID{Scheme: d.Text(), ID: d.Text()})
	}
	if d.err != nil {
		r.IDs = nil
	}
}
