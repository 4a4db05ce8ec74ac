package wire

// RequestHeader begins every request except the connect request.
type RequestHeader struct {
	Xid int32
	Op  Op
}

func (h RequestHeader) Encode(e *Encoder) {
	e.Int32(h.Xid)
	e.Int32(int32(h.Op))
}

func (h *RequestHeader) Decode(d *Decoder) { *h = RequestHeader{Xid: d.Int32(), Op: Op(d.Int32())} }

// ReplyHeader begins every reply. A reply whose Err is not [OK] has no body.
type ReplyHeader struct {
	Xid  int32
	Zxid int64
	Err  Code
}

func (h ReplyHeader) Encode(e *Encoder) {
	e.Int32(h.Xid)
	e.Int64(h.Zxid)
	e.Int32(int32(h.Err))
}

func (h *ReplyHeader) Decode(d *Decoder) {
	*h = ReplyHeader{Xid: d.Int32(), Zxid: d.Int64(), Err: Code(d.Int32())}
}

// WatcherEvent reports a change; its header has xid -1 and, up to ZooKeeper 3.8, zxid -1.
type WatcherEvent struct {
	Type  int32
	State int32
	Path  string
}

func (w WatcherEvent) Encode(e *Encoder) {
	e.Int32(w.Type)
	e.Int32(w.State)
	e.String(w.Path)
}

func (w *WatcherEvent) Decode(d *Decoder) {
	*w = WatcherEvent{Type: d.Int32(), State: d.Int32(), Path: d.Text()}
}
