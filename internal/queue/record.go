package queue

import "strings"

// Record is the data of a lock root: words name=value, separated by spaces. A client that changes a
// word keeps all other words, and writes against the version that it has read.
//
// A lock with a lock-delay has two words there. The grant writes held, the name of the holder's
// node, in a transaction that checks that node; the release removes it together with the node. So a
// record that names a deleted node shows that its holder disappeared.
type Record string

// The words of a lock-delay.
const (
	HeldWord  = "held"  // the node that was granted and not released
	UntilWord = "until" // for people: until when the delay lasts, by the clock of the client that waits for it
)

// oldRecord begins the data that an earlier version of zklock left in lock roots. It contains
// nothing that is needed.
const oldRecord = "zklock/1 "

// ParseRecord parses the data of a lock root. It returns false if another program wrote it.
func ParseRecord(data []byte) (r Record, isOurs bool) {
	if len(data) == 0 || strings.HasPrefix(string(data), oldRecord) {
		return "", true
	}
	for word := range strings.SplitSeq(string(data), " ") {
		name, value, ok := strings.Cut(word, "=")
		if !ok || name == "" || value == "" || strings.ContainsFunc(word, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
			return "", false
		}
	}
	return Record(data), true
}

// Word returns the value of a word, "" if the record does not have it.
func (r Record) Word(name string) string {
	for word := range strings.SplitSeq(string(r), " ") {
		if value, ok := strings.CutPrefix(word, name+"="); ok {
			return value
		}
	}
	return ""
}

// with sets a word, or removes it if the value is "". All other words stay.
func (r Record) with(name, value string) Record {
	var words []string
	for word := range strings.SplitSeq(string(r), " ") {
		if word != "" && !strings.HasPrefix(word, name+"=") {
			words = append(words, word)
		}
	}
	if value != "" {
		words = append(words, name+"="+value)
	}
	return Record(strings.Join(words, " "))
}

// Granted records that node is granted.
func (r Record) Granted(node string) Record { return r.with(UntilWord, "").with(HeldWord, node) }

// Delayed records until when a client waits for the delay.
func (r Record) Delayed(until string) Record { return r.with(UntilWord, until) }

// Released removes the record of node. isChanged is false if the record does not name node.
func (r Record) Released(node string) (without Record, isChanged bool) {
	if r.Word(HeldWord) != node {
		return r, false
	}
	return r.with(UntilWord, "").with(HeldWord, ""), true
}

// Reading is what a node that no other node blocks reads in the record of its lock.
type Reading struct {
	Held   string // the node that it names, "" if none
	Own    string // our node
	Conn   uint64 // the connection over which it was read
	Early  bool   // the read was sent before the proof arrived
	Synced bool   // the read was sent after a sync over the same connection
	Over   bool   // the delay has passed since this Session first observed that the node does not exist
}

// RecordRead handles the record. Exclusion does not depend on it, because only a node that is first
// in the queue reads it.
//
// If the record names no node, that may be outdated: the write against its version detects this. If
// it names another node, the proof shows that the node does not exist. But a record read before the
// proof may name a holder that was alive then and has released since. We must not wait for that
// one, and a delay that began at that time would end too early.
func (w Machine) RecordRead(r Reading) Machine {
	isNews := r.Synced || r.Conn != 0 && r.Conn == w.proof
	switch w.Sync = false; {
	case r.Held == "", r.Held == r.Own: // our write got no response: repeated, it checks our node
		w.Next = ToWriteRecord
	case r.Early:
		w.Next = ToReadRecord
	case !isNews: // events carry no zxid: on another connection, the server may lag behind the proof
		w.Next, w.Sync = ToReadRecord, true
	case r.Over:
		w.Next = ToWriteRecord
	default:
		w.Next = ToAwaitDelay
	}
	return w
}

// DelayOver handles the end of the delay.
func (w Machine) DelayOver() Machine {
	w.Next = ToWriteRecord
	return w
}

// RecordWritten handles the response to the transaction that checks our node and records the grant:
// Exists if executed, Absent if our node does not exist, Unknown without a response or if the
// record had changed.
func (w Machine) RecordWritten(f Finding) Machine {
	switch f {
	case Exists:
		return w.restart(ToGrant)
	case Absent:
		return w.restart(ToQueueAgain)
	}
	w.Next, w.Sync = ToReadRecord, true
	return w
}
