package wire

import "strconv"

// Code is the error code in a [ReplyHeader]; [OK] means success. It implements error, so that a
// rule can return it.
type Code int32

// ZooKeeper's error codes.
const (
	OK                      Code = 0
	SystemError             Code = -1
	RuntimeInconsistency    Code = -2
	ConnectionLoss          Code = -4
	MarshallingError        Code = -5
	Unimplemented           Code = -6
	OperationTimeout        Code = -7
	BadArguments            Code = -8
	UnknownSession          Code = -12
	APIError                Code = -100
	NoNode                  Code = -101
	NoAuth                  Code = -102
	BadVersion              Code = -103
	NoChildrenForEphemerals Code = -108
	NodeExists              Code = -110
	NotEmpty                Code = -111
	SessionExpired          Code = -112
	InvalidACL              Code = -114
	AuthFailed              Code = -115
	SessionMoved            Code = -118
	NotReadOnly             Code = -119
	LocalSession            Code = -120
	NoWatcher               Code = -121
	ReconfigDisabled        Code = -123
	AuthRequired            Code = -124
	QuotaExceeded           Code = -125
	Throttled               Code = -127
)

// ReplyTooLong is not a server's code: it replaces a response that is longer than its reader
// accepts.
const ReplyTooLong Code = 1

var codeNames = map[Code]string{
	OK: "ok", SystemError: "system error", RuntimeInconsistency: "runtime inconsistency",
	ConnectionLoss: "connection loss", MarshallingError: "marshalling error", Unimplemented: "unimplemented",
	OperationTimeout: "operation timeout", BadArguments: "bad arguments", UnknownSession: "unknown session",
	APIError: "API error", NoNode: "no node", NoAuth: "no auth", BadVersion: "bad version",
	NoChildrenForEphemerals: "no children for ephemerals", NodeExists: "node exists", NotEmpty: "not empty",
	SessionExpired: "session expired", InvalidACL: "invalid ACL", AuthFailed: "auth failed",
	SessionMoved: "session moved", NotReadOnly: "not read only", LocalSession: "ephemeral node in a local session", NoWatcher: "no watcher",
	ReconfigDisabled: "reconfig disabled", AuthRequired: "authentication required", QuotaExceeded: "quota exceeded", Throttled: "throttled",
	ReplyTooLong: "the answer is longer than zklock reads",
}

// String returns the code's name and number.
func (c Code) String() string {
	if name, ok := codeNames[c]; ok {
		return name + " (" + strconv.Itoa(int(c)) + ")"
	}
	return "code(" + strconv.Itoa(int(c)) + ")"
}

// Error implements error.
func (c Code) Error() string { return "zookeeper: " + c.String() }
