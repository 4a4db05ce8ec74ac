package queue

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Once is the state machine of a holder that has work done once: the holder looks for the mark of
// the work, does the work if there is no mark, and writes the mark. The methods are pure: the
// holder does what Next requests, and passes the result on.
//
//	OnceRead ──▶ OnceProve ──▶ OnceWork ──▶ OnceWrite ──▶ OnceMarked
//	    └──▶ OnceDone
//
// A proof or a write that had no response, or met another version of the mark, leads to OnceRead.
//
// The promise: no holder whose node exists begins the work when its mark has been confirmed. The
// holder that wrote the mark held before, and the write checked its node. So the mark is older than
// the proof, a transaction that checks our node and writes the mark as it was read, against its
// version: it succeeds only if the read showed the mark as it is now. The read alone proves
// nothing, because a grant by an event carries no zxid, and the server of the next connection may
// lag behind it.
//
// The proof has a second use. What the servers would not let us write later, they reject now,
// before the work begins.
type Once struct {
	Next   OnceStage
	worked bool
}

// OnceStage is the next step of the holder.
type OnceStage uint8

const (
	OnceRead   OnceStage = iota // read the mark
	OnceProve                   // write what was read, in a transaction that checks our node
	OnceWork                    // do the work
	OnceWrite                   // write the new mark, in such a transaction
	OnceDone                    // nothing: the work is marked already
	OnceMarked                  // nothing: the mark is written
	OnceLost                    // nothing: our node does not exist
)

// Read takes whether the read showed the mark of the work. If there was no response, the mark is
// read again.
func (o Once) Read(f Finding) Once {
	switch {
	case f == Unknown:
	case f == Exists && o.worked:
		o.Next = OnceMarked // it is ours, or one that was written under the same hold
	case f == Exists:
		o.Next = OnceDone
	case o.worked:
		o.Next = OnceWrite
	default:
		o.Next = OnceProve
	}
	return o
}

// Worked takes the success of the work. The mark still is as it was proved, unless a client breaks
// the rules or work under the same hold was marked: the write reports that.
func (o Once) Worked() Once {
	o.Next, o.worked = OnceWrite, true
	return o
}

// Wrote takes the result of the proof, or of the write after the work: success, that our node does
// not exist, or neither. Without a response it may have been written, so the mark is read again. So
// it is if it had changed: an earlier write of ours may have done that.
func (o Once) Wrote(f Finding) Once {
	switch {
	case f == Absent:
		o.Next = OnceLost
	case f == Unknown:
		o.Next = OnceRead
	case o.worked:
		o.Next = OnceMarked
	default:
		o.Next = OnceWork
	}
	return o
}

// MaxKey is the maximum length of a work's key in bytes.
const MaxKey = 256

// IsKey reports whether the text can be the key of a work.
func IsKey(key string) bool {
	return len(key) > 0 && len(key) <= MaxKey && utf8.ValidString(key) && !strings.ContainsFunc(key, func(c rune) bool { return !unicode.IsPrint(c) })
}
