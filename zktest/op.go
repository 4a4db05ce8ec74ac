package zktest

import (
	"strconv"

	"github.com/zklock/zklock/internal/wire"
)

// Op is a kind of request, for faults and counts.
type Op int32

// The requests that tests most often need. Any other number of the protocol works, too: Op(7) is
// setACL. Connect is the exchange that opens a connection.
//
// Clients use different requests for the same purpose. So a fault or a count for [Create] includes
// the three other creates, one for [GetChildren] includes GetChildren2, and one for [SetWatches]
// includes setWatches2.
const (
	AnyOp           Op = 0 // every request but Ping and Connect
	Connect            = Op(wire.OpConnect)
	CloseSession       = Op(wire.OpClose)
	Create             = Op(wire.OpCreate)
	Create2            = Op(wire.OpCreate2)
	CreateContainer    = Op(wire.OpCreateContainer)
	Delete             = Op(wire.OpDelete)
	Exists             = Op(wire.OpExists)
	GetData            = Op(wire.OpGetData)
	SetData            = Op(wire.OpSetData)
	GetChildren        = Op(wire.OpGetChildren)
	GetChildren2       = Op(wire.OpGetChildren2)
	Sync               = Op(wire.OpSync)
	Ping               = Op(wire.OpPing)
	Multi              = Op(wire.OpMulti)
	Auth               = Op(wire.OpAuth)
	SetWatches         = Op(wire.OpSetWatches)
	SASL               = Op(wire.OpSASL)
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
	switch op {
	case got:
		return true
	case AnyOp:
		return got != Ping && got != Connect
	case Create:
		return got == Create2 || got == CreateContainer || got == Op(wire.OpCreateTTL)
	case GetChildren:
		return got == GetChildren2
	case SetWatches:
		return got == Op(wire.OpSetWatches2)
	}
	return false
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

// The codes that faults most often need. Any other number works, too.
const (
	OperationTimeout = Code(wire.OperationTimeout)
	Unimplemented    = Code(wire.Unimplemented)
	BadArguments     = Code(wire.BadArguments)
	NoNode           = Code(wire.NoNode)
	NoAuth           = Code(wire.NoAuth)
	AuthFailed       = Code(wire.AuthFailed)
	AuthRequired     = Code(wire.AuthRequired)
	BadVersion       = Code(wire.BadVersion)
	NodeExists       = Code(wire.NodeExists)
	NotEmpty         = Code(wire.NotEmpty)
	SessionExpired   = Code(wire.SessionExpired)
	SessionMoved     = Code(wire.SessionMoved)
	QuotaExceeded    = Code(wire.QuotaExceeded)
	Throttled        = Code(wire.Throttled)
)

// String returns the code's name and number.
func (c Code) String() string { return wire.Code(c).String() }

// Error implements error.
func (c Code) Error() string { return "zktest: " + c.String() }
