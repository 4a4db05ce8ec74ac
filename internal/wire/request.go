package wire

// CreateRequest is the body of create, create2, createContainer and createTTL; only the last sends
// TTL.
type CreateRequest struct {
	Path  string
	Data  []byte
	ACL   []ACL
	Flags int32
	TTL   int64 // milliseconds
}

// Encode appends the request without a TTL.
func (r CreateRequest) Encode(e *Encoder) {
	e.String(r.Path)
	e.Buffer(r.Data)
	encodeACLs(e, r.ACL)
	e.Int32(r.Flags)
}

// Decode reads a request without a TTL.
func (r *CreateRequest) Decode(d *Decoder) {
	*r = CreateRequest{Path: d.Text(), Data: d.Buffer(), ACL: decodeACLs(d), Flags: d.Int32(), TTL: -1}
}

// CreateTTLRequest is a [CreateRequest] with its TTL.
type CreateTTLRequest struct{ CreateRequest }

func (r CreateTTLRequest) Encode(e *Encoder) {
	r.CreateRequest.Encode(e)
	e.Int64(r.TTL)
}

func (r *CreateTTLRequest) Decode(d *Decoder) {
	r.CreateRequest.Decode(d)
	r.TTL = d.Int64()
}

// PathRequest is the body of getACL, sync and getAllChildrenNumber.
type PathRequest struct{ Path string }

func (r PathRequest) Encode(e *Encoder) { e.String(r.Path) }

func (r *PathRequest) Decode(d *Decoder) { r.Path = d.Text() }

// PathVersionRequest is the body of delete and check. Version -1 matches any version.
type PathVersionRequest struct {
	Path    string
	Version int32
}

func (r PathVersionRequest) Encode(e *Encoder) {
	e.String(r.Path)
	e.Int32(r.Version)
}

func (r *PathVersionRequest) Decode(d *Decoder) {
	*r = PathVersionRequest{Path: d.Text(), Version: d.Int32()}
}

// PathWatchRequest is the body of exists, getData, getChildren and getChildren2.
type PathWatchRequest struct {
	Path  string
	Watch bool
}

func (r PathWatchRequest) Encode(e *Encoder) {
	e.String(r.Path)
	e.Bool(r.Watch)
}

func (r *PathWatchRequest) Decode(d *Decoder) {
	*r = PathWatchRequest{Path: d.Text(), Watch: d.Bool()}
}

// SetDataRequest is the body of setData.
type SetDataRequest struct {
	Path    string
	Data    []byte
	Version int32
}

func (r SetDataRequest) Encode(e *Encoder) {
	e.String(r.Path)
	e.Buffer(r.Data)
	e.Int32(r.Version)
}

func (r *SetDataRequest) Decode(d *Decoder) {
	*r = SetDataRequest{Path: d.Text(), Data: d.Buffer(), Version: d.Int32()}
}

// SetACLRequest is the body of setACL; its version is the node's aversion.
type SetACLRequest struct {
	Path    string
	ACL     []ACL
	Version int32
}

func (r SetACLRequest) Encode(e *Encoder) {
	e.String(r.Path)
	encodeACLs(e, r.ACL)
	e.Int32(r.Version)
}

func (r *SetACLRequest) Decode(d *Decoder) {
	*r = SetACLRequest{Path: d.Text(), ACL: decodeACLs(d), Version: d.Int32()}
}

// AuthRequest is the body of auth.
type AuthRequest struct {
	Type   int32
	Scheme string
	Auth   []byte
}

func (r AuthRequest) Encode(e *Encoder) {
	e.Int32(r.Type)
	e.String(r.Scheme)
	e.Buffer(r.Auth)
}

func (r *AuthRequest) Decode(d *Decoder) {
	r.Type = d.Int32()
	r.Scheme, _ = d.NullableString() // no scheme is called null or ""
	r.Auth = d.Buffer()
}

// SASLToken is the body of sasl and of its response: a token of the mechanism.
type SASLToken struct{ Token []byte }

func (r SASLToken) Encode(e *Encoder) { e.Buffer(r.Token) }

func (r *SASLToken) Decode(d *Decoder) { r.Token = d.Buffer() }

// SetWatchesRequest is the body of setWatches and setWatches2; only the second sends the persistent
// watches.
type SetWatchesRequest struct {
	RelativeZxid int64
	Data         []string
	Exist        []string
	Child        []string
	Persistent   []string
	Recursive    []string
}

func (r SetWatchesRequest) Encode(e *Encoder) {
	e.Int64(r.RelativeZxid)
	e.Strings(r.Data)
	e.Strings(r.Exist)
	e.Strings(r.Child)
}

func (r *SetWatchesRequest) Decode(d *Decoder) {
	*r = SetWatchesRequest{RelativeZxid: d.Int64(), Data: d.Strings(), Exist: d.Strings(), Child: d.Strings()}
}

// SetWatches2Request is a [SetWatchesRequest] with its persistent watches.
type SetWatches2Request struct{ SetWatchesRequest }

func (r SetWatches2Request) Encode(e *Encoder) {
	r.SetWatchesRequest.Encode(e)
	e.Strings(r.Persistent)
	e.Strings(r.Recursive)
}

func (r *SetWatches2Request) Decode(d *Decoder) {
	r.SetWatchesRequest.Decode(d)
	r.Persistent = d.Strings()
	r.Recursive = d.Strings()
}

// WatchesRequest is the body of checkWatches and removeWatches.
type WatchesRequest struct {
	Path string
	Type int32
}

func (r WatchesRequest) Encode(e *Encoder) {
	e.String(r.Path)
	e.Int32(r.Type)
}

func (r *WatchesRequest) Decode(d *Decoder) { *r = WatchesRequest{Path: d.Text(), Type: d.Int32()} }

// AddWatchRequest is the body of addWatch.
type AddWatchRequest struct {
	Path string
	Mode int32
}

func (r AddWatchRequest) Encode(e *Encoder) {
	e.String(r.Path)
	e.Int32(r.Mode)
}

func (r *AddWatchRequest) Decode(d *Decoder) { *r = AddWatchRequest{Path: d.Text(), Mode: d.Int32()} }

// GetEphemeralsRequest is the body of getEphemerals.
type GetEphemeralsRequest struct{ Prefix string }

func (r GetEphemeralsRequest) Encode(e *Encoder) { e.String(r.Prefix) }

// Decode reads the request; a null prefix becomes empty.
func (r *GetEphemeralsRequest) Decode(d *Decoder) { r.Prefix, _ = d.NullableString() }
