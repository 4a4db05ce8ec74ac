package wire

import "strconv"

// Op is the type of a request, as in the [RequestHeader].
type Op int32

// The requests that a client of ZooKeeper 3.8 can send. OpConnect is never sent: it names the
// connect exchange, which has no header, so that it can be counted and matched like other requests.
const (
	OpConnect              Op = -10
	OpClose                Op = -11
	OpError                Op = -1 // inside multi responses only
	OpCreate               Op = 1
	OpDelete               Op = 2
	OpExists               Op = 3
	OpGetData              Op = 4
	OpSetData              Op = 5
	OpGetACL               Op = 6
	OpSetACL               Op = 7
	OpGetChildren          Op = 8
	OpSync                 Op = 9
	OpPing                 Op = 11
	OpGetChildren2         Op = 12
	OpCheck                Op = 13
	OpMulti                Op = 14
	OpCreate2              Op = 15
	OpReconfig             Op = 16
	OpCheckWatches         Op = 17
	OpRemoveWatches        Op = 18
	OpCreateContainer      Op = 19
	OpDeleteContainer      Op = 20 // the server's own, never a client's
	OpCreateTTL            Op = 21
	OpMultiRead            Op = 22
	OpAuth                 Op = 100
	OpSetWatches           Op = 101
	OpSASL                 Op = 102
	OpGetEphemerals        Op = 103
	OpGetAllChildrenNumber Op = 104
	OpSetWatches2          Op = 105
	OpAddWatch             Op = 106
	OpWhoAmI               Op = 107
)

var opNames = map[Op]string{
	OpConnect: "connect", OpClose: "closeSession", OpError: "error", OpCreate: "create", OpDelete: "delete",
	OpExists: "exists", OpGetData: "getData", OpSetData: "setData", OpGetACL: "getACL", OpSetACL: "setACL",
	OpGetChildren: "getChildren", OpSync: "sync", OpPing: "ping", OpGetChildren2: "getChildren2",
	OpCheck: "check", OpMulti: "multi", OpCreate2: "create2", OpReconfig: "reconfig",
	OpCheckWatches: "checkWatches", OpRemoveWatches: "removeWatches", OpCreateContainer: "createContainer",
	OpDeleteContainer: "deleteContainer", OpCreateTTL: "createTTL", OpMultiRead: "multiRead", OpAuth: "auth",
	OpSetWatches: "setWatches", OpSASL: "sasl", OpGetEphemerals: "getEphemerals",
	OpGetAllChildrenNumber: "getAllChildrenNumber", OpSetWatches2: "setWatches2", OpAddWatch: "addWatch",
	OpWhoAmI: "whoAmI",
}

// String returns ZooKeeper's own name for the request.
func (op Op) String() string {
	if name, ok := opNames[op]; ok {
		return name
	}
	return "op(" + strconv.Itoa(int(op)) + ")"
}

// Reserved xids. All other requests have positive xids.
const (
	XidEvent      int32 = -1 // a WatcherEvent, in replies only
	XidPing       int32 = -2
	XidAuth       int32 = -4 // kazoo and Java; go-zookeeper sends auth with an ordinary xid
	XidSetWatches int32 = -8 // Java
)

// Flags of a create request.
const (
	FlagPersistent          int32 = 0
	FlagEphemeral           int32 = 1
	FlagSequential          int32 = 2
	FlagEphemeralSequential int32 = 3
	FlagContainer           int32 = 4
	FlagTTL                 int32 = 5
	FlagTTLSequential       int32 = 6
)

// Permissions of an [ACL], combined by or.
const (
	PermRead   int32 = 1
	PermWrite  int32 = 2
	PermCreate int32 = 4
	PermDelete int32 = 8
	PermAdmin  int32 = 16
	PermAll    int32 = 31
)

// Types of a [WatcherEvent].
const (
	EventCreated         int32 = 1
	EventDeleted         int32 = 2
	EventDataChanged     int32 = 3
	EventChildrenChanged int32 = 4
)

// StateSyncConnected is the state in every [WatcherEvent] of a node.
const StateSyncConnected int32 = 3

// Types of watches in a [WatchesRequest]. The last two are new in ZooKeeper 3.9.
const (
	WatcherChildren            int32 = 1
	WatcherData                int32 = 2
	WatcherAny                 int32 = 3
	WatcherPersistent          int32 = 4
	WatcherPersistentRecursive int32 = 5
)

// Modes of an [AddWatchRequest].
const (
	AddWatchPersistent          int32 = 0
	AddWatchPersistentRecursive int32 = 1
)
