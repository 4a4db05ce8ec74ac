package wire

// ConnectRequest is the first frame of a connection: it requests a new session, or re-attaches to
// one.
type ConnectRequest struct {
	ProtocolVersion int32
	LastZxidSeen    int64
	Timeout         int32 // milliseconds
	SessionID       int64 // 0 for a new session
	Password        []byte
	ReadOnly        bool
	HasReadOnly     bool // go-zookeeper sends no readOnly byte, and then the response has none either
}

func (r ConnectRequest) Encode(e *Encoder) {
	e.Int32(r.ProtocolVersion)
	e.Int64(r.LastZxidSeen)
	e.Int32(r.Timeout)
	e.Int64(r.SessionID)
	e.Buffer(r.Password)
	if r.HasReadOnly {
		e.Bool(r.ReadOnly)
	}
}

func (r *ConnectRequest) Decode(d *Decoder) {
	*r = ConnectRequest{
		ProtocolVersion: d.Int32(), LastZxidSeen: d.Int64(), Timeout: d.Int32(),
		SessionID: d.Int64(), Password: d.Buffer(),
	}
	if len(d.Rest()) > 0 {
		r.HasReadOnly = true
		r.ReadOnly = d.Bool()
	}
}

// ConnectResponse is the response to a [ConnectRequest]. Session id 0 reports that the session has
// ended.
type ConnectResponse struct {
	ProtocolVersion int32
	Timeout         int32 // as negotiated, milliseconds
	SessionID       int64
	Password        []byte // 16 bytes
	ReadOnly        bool
	HasReadOnly     bool // only if the request had one
}

func (r ConnectResponse) Encode(e *Encoder) {
	e.Int32(r.ProtocolVersion)
	e.Int32(r.Timeout)
	e.Int64(r.SessionID)
	e.Buffer(r.Password)
	if r.HasReadOnly {
		e.Bool(r.ReadOnly)
	}
}

func (r *ConnectResponse) Decode(d *Decoder) {
	*r = ConnectResponse{
		ProtocolVersion: d.Int32(), Timeout: d.Int32(), SessionID: d.Int64(), Password: d.Buffer(),
	}
	if len(d.Rest()) > 0 {
		r.HasReadOnly = true
		r.ReadOnly = d.Bool()
	}
}

// SessionPassword returns the password that ZooKeeper from 3.4 on gives the session: 16 bytes of a
// java.util.Random seeded with the id and a constant. So the id is enough to take over a session,
// which is how a test ends one on any server.
func SessionPassword(session int64) []byte {
	const superSecret = 0xB3415C00
	const mask = 1<<48 - 1
	seed := (uint64(session^superSecret) ^ 0x5DEECE66D) & mask
	password := make([]byte, 0, 16)
	for len(password) < 16 {
		seed = (seed*0x5DEECE66D + 0xB) & mask
		word := uint32(seed >> 16)
		password = append(password, byte(word), byte(word>>8), byte(word>>16), byte(word>>24))
	}
	return password
}
