package queue

import "strings"

// Record is the data of a lock root: words name=value, with a space between. Who changes a word keeps all others, and writes against
// the version that it has read.
//
// A lock with a lock-delay has two words there. The grant writes held, the name of the holder's node, in a transaction that checks that
// node; the release takes it back with the node. So a record that names a node that is gone tells that its holder disappeared.
type Record string

// The words of a lock-delay.
const (
	HeldWord  = "held"  // the node that was granted and not released
	UntilWord = "until" // for people: until when the delay lasts by the clock of who waits for it
)

// oldRecord begins the data that an earlier version of zklock left in lock roots. It says nothing that is needed.
const oldRecord = "zklock/1 "

// ParseRecord reads the data of a lock root. It returns false if somebody else wrote it.
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

// Word returns the value of a word, "" if it is not there.
func (r Record) Word(name string) string {
	for word := range strings.SplitSeq(string(r), " ") {
		if value, ok := strings.CutPrefix(word, name+"="); ok {
			return value
		}
	}
	return ""
}

// with sets a word, or takes it out if the value is "". All others stay.
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

// Delayed notes until when somebody waits for the delay.
func (r Record) Delayed(until string) Record { return r.with(UntilWord, until) }

// Released takes the record of node back. isChanged is false if it is not there.
func (r Record) Released(node string) (without Record, isChanged bool) {
	if r.Word(HeldWord) != node {
		return r, false
	}
	return r.with(UntilWord, "").with(HeldWord, ""), true
}

// Reading is what a node that was shown to be in front reads in the record of its lock.
type Reading struct {
	Held   string // the node that it names, "" if none
	Own    string // ours
	Conn   uint64 // the connection over which it was read
	Early  bool   // it was asked for before the proof came
	Synced bool   // it was asked for after a sync over the same connection
	Over   bool   // the delay is over since this Session first knew that the node was gone
}

// RecordRead takes the record. Exclusion does not rest on it: nobody comes here who is not in front.
//
// If it names nobody, that need not be true any more: the write against its version says so. If it names another node, the proof says
// that the node is gone. But a record from before the proof may name a holder that has released since. For that we must not wait. And
// a delay that began then would end too early: the holder lived.
func (w Walk) RecordRead(r Reading) Walk {
	isNews := r.Synced || r.Conn != 0 && r.Conn == w.proof
	switch w.Sync = false; {
	case r.Held == "", r.Held == r.Own: // ours had no answer: written again, it checks our node
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

// DelayOver takes the end of the delay.
func (w Walk) DelayOver() Walk {
	w.Next = ToWriteRecord
	return w
}

// RecordWritten takes the answer to the transaction that checks our node and records the grant: whether it was done, whether our node
// is gone, or that nobody knows: there was no answer, or the record had changed.
func (w Walk) RecordWritten(f Finding) Walk {
	switch f {
	case IsThere:
		return w.anew(ToGrant)
	case IsGone:
		return w.anew(ToQueueAgain)
	}
	w.Next, w.Sync = ToReadRecord, true
	return w
}
