package zktest

import (
	"strconv"

	"github.com/zklock/zklock/internal/wire"
)

// Op is a kind of request, for faults and counts.
type Op int32

// The requests that tests most often need. Any other number of the protocol works, too: Op(7) is
// setACL, Op(100) is auth, and Op(102) is sasl. Connect is the exchange that opens a connection.
//
// Clients use different requests for the same purpose. So [Create] includes create2,
// createContainer and createTTL, [GetChildren] includes getChildren2, and [SetWatches] includes
// setWatches2: in a fault, in a count, in a [Request] and in a [Frame]. A fault or a count for
// Op(15) includes only create2.
const (
	AnyOp        Op = 0 // every request but Ping and Connect
	Connect         = Op(wire.OpConnect)
	CloseSession    = Op(wire.OpClose)
	Create          = Op(wire.OpCreate)
	Delete          = Op(wire.OpDelete)
	Exists          = Op(wire.OpExists)
	GetData         = Op(wire.OpGetData)
	SetData         = Op(wire.OpSetData)
	GetChildren     = Op(wire.OpGetChildren)
	Sync            = Op(wire.OpSync)
	Ping            = Op(wire.OpPing)
	Multi           = Op(wire.OpMulti)
	SetWatches      = Op(wire.OpSetWatches)
)

// String returns ZooKeeper's name for the request.
func (op Op) String() string {
	if op == AnyOp {
		return "any"
	}
	return wire.Op(op).String()
}

// covers reports whether a fault or count for op includes requests of type got.
func (op Op) covers(got Op) bool {
	if op == AnyOp {
		return got != Ping && got != Connect
	}
	return op == got || op == got.common()
}

// common returns the constant for all requests with the same purpose as op.
func (op Op) common() Op {
	switch wire.Op(op) {
	case wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL:
		return Create
	case wire.OpGetChildren2:
		return GetChildren
	case wire.OpSetWatches2:
		return SetWatches
	}
	return op
}

// EventType is the type of a watch event.
type EventType int32

// The events of nodes.
const (
	AnyEvent            EventType = 0
	NodeCreated                   = EventType(wire.EventCreated)
	NodeDeleted                   = EventType(wire.EventDeleted)
	NodeDataChanged               = EventType(wire.EventDataChanged)
	NodeChildrenChanged           = EventType(wire.EventChildrenChanged)
)

// String returns ZooKeeper's name for the event.
func (e EventType) String() string {
	switch e {
	case AnyEvent:
		return "any"
	case NodeCreated:
		return "NodeCreated"
	case NodeDeleted:
		return "NodeDeleted"
	case NodeDataChanged:
		return "NodeDataChanged"
	case NodeChildrenChanged:
		return "NodeChildrenChanged"
	}
	return "event(" + strconv.Itoa(int(e)) + ")"
}

// Code is an error code in a server's reply. It has ZooKeeper's numbers, which are also
// go-zookeeper's ErrCode numbers. A Code is an error: [Server.Create] and similar methods return
// it.
type Code int32

// The codes that faults most often need. Any other number works, too: Code(-115) is the code of a
// failed authentication.
const (
	OperationTimeout = Code(wire.OperationTimeout)
	NoNode           = Code(wire.NoNode)
	NoAuth           = Code(wire.NoAuth)
	BadVersion       = Code(wire.BadVersion)
	NodeExists       = Code(wire.NodeExists)
	NotEmpty         = Code(wire.NotEmpty)
	SessionExpired   = Code(wire.SessionExpired)
	SessionMoved     = Code(wire.SessionMoved)
	Throttled        = Code(wire.Throttled)
)

// Error returns the code's name and number.
func (c Code) Error() string { return "zktest: " + wire.Code(c).String() }
