package queue

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Once is what a holder does to have work done once: it looks for the mark of the work, does the work if there is none, and marks it. It
// changes nothing but itself: the holder does what Next says, and takes what came of it.
//
//	OnceProve ──▶ OnceRead ──▶ OnceWork ──▶ OnceWrite ──▶ OnceMarked
//	                   └──▶ OnceDone          └──▶ OnceProve: nobody knows whether it was written
//
// The promise: no holder whose node is there begins the work when its mark has been confirmed. The one who wrote the mark held before, and the
// write checked its node. So the mark is older than the proof that our node is there. That is a transaction, whose answer carries a zxid, and
// no server behind that answers this client any more: so a read that is sent when the proof has been answered shows the mark, over whatever
// connection. A grant is no such proof: an event carries no zxid, so the server of the next connection may be behind it.
type Once struct {
	Next   OnceStage
	worked bool
}

// OnceStage is what the holder has to do next.
type OnceStage uint8

const (
	OnceProve  OnceStage = iota // check our node in a transaction
	OnceRead                    // read the mark
	OnceWork                    // do the work
	OnceWrite                   // write the mark against what was read, in a transaction that checks our node
	OnceDone                    // nothing: somebody has done the work
	OnceMarked                  // nothing: the mark is written
	OnceLost                    // nothing: our node is gone
)

// Proved takes the answer to the check of our node.
func (o Once) Proved(f Finding) Once {
	switch f {
	case IsThere:
		o.Next = OnceRead
	case IsGone:
		o.Next = OnceLost
	}
	return o
}

// Read takes whether the mark was there. If there was no answer, the mark is read again.
func (o Once) Read(f Finding) Once {
	switch {
	case f == NotTold:
	case f == IsThere && o.worked:
		o.Next = OnceMarked // it is ours, or one that was written under the same hold
	case f == IsThere:
		o.Next = OnceDone
	case o.worked:
		o.Next = OnceWrite
	default:
		o.Next = OnceWork
	}
	return o
}

// Worked takes the work's success. What was read before it still is as it was, unless somebody breaks the rules, or work under the same
// hold was marked: the write says so.
func (o Once) Worked() Once {
	o.Next, o.worked = OnceWrite, true
	return o
}

// Wrote takes the answer to the write: whether it was done, whether our node is gone, or that nobody knows: there was no answer, or
// the mark had changed, which an earlier write of ours may have done.
func (o Once) Wrote(f Finding) Once {
	switch f {
	case IsThere:
		o.Next = OnceMarked
	case IsGone:
		o.Next = OnceLost
	default:
		o.Next = OnceProve
	}
	return o
}

// MaxKey is how many bytes the key of a work may have.
const MaxKey = 256

// IsKey says whether the text can be the key of a work.
func IsKey(key string) bool {
	return len(key) > 0 && len(key) <= MaxKey && utf8.ValidString(key) && !strings.ContainsFunc(key, func(c rune) bool { return !unicode.IsPrint(c) })
}
