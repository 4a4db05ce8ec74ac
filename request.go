package zklock

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/wire"
)

// request is a request of ours: a frame that the tap sends between the client's, and whose answer it keeps from the client.
//
//	          ┌─▶ neverSent                                  the connection ended before
//	request ──┤
//	          └─▶ handed to the network ──▶ wasAnswered      on this connection, with this zxid and code
//	                                   └──▶ noAnswer         the connection ended: only a later look can tell
type request struct {
	op     wire.Op
	frame  []byte       // whole; the tap puts the xid in
	urgent bool         // does not wait for room: a heartbeat
	done   func(answer) // called once, on the goroutine that learns the fate: it must not block

	xid     int32 // the tap's, as the next
	written bool  // handed to the network
}

func newRequest(op wire.Op, body wire.Record, done func(answer)) *request {
	return &request{op: op, frame: wire.Frame(wire.RequestHeader{Op: op}, body), done: done}
}

// tooLong refuses what servers do not read: they close the connection instead.
func (r *request) tooLong() error {
	if n := len(r.frame) - 4; n > wire.MaxFrame {
		return fmt.Errorf("%w: a request of %d bytes, and servers take %d", zk.ErrBadArguments, n, wire.MaxFrame)
	}
	return nil
}

// fate is what became of a request.
type fate int

const (
	neverSent   fate = iota // not a byte of it is on its way
	wasAnswered             // with success or with an error code
	noAnswer                // sent, perhaps, and the connection ended
)

// answer is the fate of a request, with what the server said if it answered.
type answer struct {
	fate fate
	conn uint64 // the connection that it was sent over
	zxid int64
	code wire.Code
	body []byte
}

// err is what the answer says, as an error of the zk package where that has one.
func (a answer) err() error {
	if a.fate != wasAnswered {
		return zk.ErrConnectionClosed
	}
	return codeError(a.code)
}

// decode reads the body of a successful answer.
func (a answer) decode(into interface{ Decode(*wire.Decoder) }) error {
	d := wire.NewDecoder(a.body)
	into.Decode(d)
	return d.Err()
}

// xids hands out the xids of our requests. The client's are positive, and −1, −2, −4 and −8 have a meaning. They never
// start again while a session lives: a follower tells by session and xid which of its requests a commit belongs to.
type xids struct{ n atomic.Uint32 }

const firstXid = -16

func (x *xids) next() int32 { return firstXid - int32((x.n.Add(1)-1)%(1<<31-32)) }

// isOurs says whether a reply with this xid is to a request of ours.
func isOurs(xid int32) bool { return xid <= firstXid }

func wireACL(acl []zk.ACL) []wire.ACL {
	w := make([]wire.ACL, len(acl))
	for i, a := range acl {
		w[i] = wire.ACL{Perms: a.Perms, ID: wire.ID{Scheme: a.Scheme, ID: a.ID}}
	}
	return w
}

// putXid puts the xid into a frame.
func putXid(frame []byte, xid int32) { binary.BigEndian.PutUint32(frame[4:], uint32(xid)) }

// codeError turns a server's code into the error that the client has for it; nil for success.
func codeError(code wire.Code) error {
	if code == wire.OK {
		return nil
	}
	if err := zkErrors[code]; err != nil {
		return err
	}
	return code
}

var zkErrors = map[wire.Code]error{
	wire.APIError: zk.ErrAPIError, wire.NoNode: zk.ErrNoNode, wire.NoAuth: zk.ErrNoAuth, wire.BadVersion: zk.ErrBadVersion,
	wire.NoChildrenForEphemerals: zk.ErrNoChildrenForEphemerals, wire.NodeExists: zk.ErrNodeExists, wire.NotEmpty: zk.ErrNotEmpty,
	wire.SessionExpired: zk.ErrSessionExpired, wire.InvalidACL: zk.ErrInvalidACL, wire.AuthFailed: zk.ErrAuthFailed,
	wire.SessionMoved: zk.ErrSessionMoved, wire.BadArguments: zk.ErrBadArguments, wire.ReconfigDisabled: zk.ErrReconfigDisabled,
}
