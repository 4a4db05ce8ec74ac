package wire

// Stat is the stat of a node.
type Stat struct {
	Czxid          int64 // zxid of the node's creation
	Mzxid          int64 // zxid of its last setData
	Ctime          int64 // milliseconds since 1970
	Mtime          int64
	Version        int32 // setData count
	Cversion       int32 // creates and deletes of children
	Aversion       int32 // setACL count
	EphemeralOwner int64 // session, 0 for nodes that are not ephemeral
	DataLength     int32
	NumChildren    int32
	Pzxid          int64 // zxid of the last creation or deletion of a child
}

// Encode appends the stat's 68 bytes.
func (s Stat) Encode(e *Encoder) {
	e.Int64(s.Czxid)
	e.Int64(s.Mzxid)
	e.Int64(s.Ctime)
	e.Int64(s.Mtime)
	e.Int32(s.Version)
	e.Int32(s.Cversion)
	e.Int32(s.Aversion)
	e.Int64(s.EphemeralOwner)
	e.Int32(s.DataLength)
	e.Int32(s.NumChildren)
	e.Int64(s.Pzxid)
}

func (s *Stat) Decode(d *Decoder) {
	*s = Stat{
		Czxid: d.Int64(), Mzxid: d.Int64(), Ctime: d.Int64(), Mtime: d.Int64(),
		Version: d.Int32(), Cversion: d.Int32(), Aversion: d.Int32(),
		EphemeralOwner: d.Int64(), DataLength: d.Int32(), NumChildren: d.Int32(), Pzxid: d.Int64(),
	}
}

// ID is an identity: a scheme and an id within it.
type ID struct {
	Scheme string
	ID     string
}

// ACL grants permissions to an ID.
type ACL struct {
	Perms int32
	ID
	Null   bool // the scheme was null, which every server rejects
	NullID bool // the ID was null, as kazoo sends it with the scheme auth
}

func (a ACL) Encode(e *Encoder) {
	e.Int32(a.Perms)
	if a.Null {
		e.NullString()
	} else {
		e.String(a.Scheme)
	}
	if a.NullID {
		e.NullString()
	} else {
		e.String(a.ID.ID)
	}
}

func encodeACLs(e *Encoder, acls []ACL) {
	if acls == nil {
		e.Int32(-1)
		return
	}
	e.Int32(int32(len(acls)))
	for _, a := range acls {
		a.Encode(e)
	}
}

// decodeACLs returns nil for a null vector, and an empty slice for an empty one.
func decodeACLs(d *Decoder) []ACL {
	null := d.nullAhead()
	n := d.count(12)
	if null {
		return nil
	}
	acls := make([]ACL, 0, n)
	for range n {
		a := ACL{Perms: d.Int32()}
		scheme, ok := d.NullableString()
		a.Scheme, a.Null = scheme, !ok
		id, ok := d.NullableString()
		a.ID.ID, a.NullID = id, !ok
		acls = append(acls, a)
	}
	if d.err != nil {
		return nil
	}
	return acls
}
