package queue

import (
	"slices"
	"strings"
)

// A semaphore has a queue and, beside it, leases: one child for each permit that is in use or about
// to be. The first client in the queue creates leases and waits for capacity. Any other client
// creates some only if capacity remains after all clients that precede it (HaveCapacity), and does
// not wait with them. So the order is kept, and a freed permit wakes one client. Exclusion depends
// on PositionOfLeases alone.

// LeaseName is the name of a lease in Curator's semaphore, before its number. A child of another
// name is no lease.
const LeaseName = "lease-"

// OtherThanSemaphore returns a child of a semaphore's path that a lock of another kind has created
// there, or "": the semaphore's own nodes are one level further down. kazoo's reader has a name of
// its own, and the nodes of its semaphore are 32 hexadecimal digits.
func OtherThanSemaphore(children, markers []string) string {
	markers = append(slices.Clone(markers), LatchName, LeaseName, "__rlock__")
	for _, name := range children {
		bare := len(name) == 32 && strings.Trim(name, "0123456789abcdef") == ""
		if _, numbered := Parse(name, markers); bare || numbered {
			return strings.Clone(name)
		}
	}
	return ""
}

// PositionOfLeases decides the position of the leases that one transaction created. They are
// granted if there are no more than limit leases up to the last of them, in the order of their
// numbers. Later leases come behind them, and earlier ones can only be deleted: so a granted lease
// stays granted, whatever the limit becomes.
//
// The order decides and not the count: if two clients create leases for one permit, one of them is
// granted. (Curator's semaphore counts: if its inner lock is broken, both wait.)
func PositionOfLeases(mine, children []string, limit int) Position {
	ours := make(map[string]bool, len(mine))
	for _, name := range mine {
		ours[name] = true
	}
	numbers := make(map[int64]bool, len(mine)) // our leases
	ms, last, found := Members(children, []string{LeaseName}), int64(-1<<63), 0
	for _, m := range ms {
		if ours[m.Name] {
			found++
			numbers[m.Seq] = true
			last = max(last, m.Seq)
		}
	}
	if found < len(mine) {
		return Position{Kind: Missing}
	}
	p, isTwin := Position{Kind: Front}, false
	var predecessor, past Member
	for _, m := range ms {
		if m.PastTheEnd() && (ours[m.Name] || m.Seq < 0) {
			past = m
		}
		if ours[m.Name] {
			continue
		}
		isTwin = isTwin || numbers[m.Seq]
		if m.Seq < last {
			p.Blockers++
			if predecessor.Name == "" || m.Seq > predecessor.Seq {
				predecessor = m
			}
		}
	}
	switch {
	case past.Name != "":
		p = Position{Kind: Exhausted}
		if !ours[past.Name] {
			p.Predecessor = strings.Clone(past.Name)
		}
		return p
	case isTwin:
		return Position{Kind: Twin}
	case p.Blockers+len(mine) > limit:
		p.Kind = Behind
	}
	p.Predecessor = strings.Clone(predecessor.Name)
	return p
}

// HaveCapacity reports whether there is capacity for k more leases, and for one of each client that
// precedes ours and has none yet (Without).
//
// The order of the requests matters. A client in the queue lists the queue before the leases, and
// then creates its own. A client that does not queue creates its leases first, and then lists both:
// an earlier list may date from a time when no client waited. A client that takes permits meanwhile
// moves from one list to the other, so at least one of them shows it. A client that wants several
// permits counts as one until its leases exist.
func HaveCapacity(leases, before, k, limit int) bool { return leases+before+k <= limit }

// Without returns how many clients in the queue before self have no leases; if self is "", of the
// whole queue. The leases of a client in the queue have the protection id of its node there. (The
// leases of Curator's client do not: it counts twice for a moment.)
func Without(self string, queued, leases, markers []string) (before int) {
	has := make(map[string]bool, len(leases))
	for _, name := range leases {
		if id, ok := ProtectionID(name); ok {
			has[id] = true
		}
	}
	own, isQueued := Parse(self, markers)
	for _, m := range Members(queued, markers) {
		if id, _ := ProtectionID(m.Name); !has[id] && (!isQueued || ByNumber(m, own) < 0) {
			before++
		}
	}
	return before
}

// NamesBehind returns the names of the nodes behind self, in the order of their numbers. self may
// have been deleted.
func NamesBehind(self string, children, markers []string) (names []string) {
	own, _ := Parse(self, markers)
	ms := slices.DeleteFunc(Members(children, markers), func(m Member) bool { return ByNumber(m, own) <= 0 })
	slices.SortFunc(ms, ByNumber)
	for _, m := range ms {
		names = append(names, strings.Clone(m.Name))
	}
	return names
}

// SeenLeases serves observers, which do not have the limit. It returns Front if the k leases that
// one transaction created all exist: the first, and the leases of its id with the numbers that
// follow. Otherwise it returns Missing. A larger k takes no more time.
func SeenLeases(first string, k int, children []string) Kind {
	lease, ok := Parse(first, []string{LeaseName})
	head, found := first[:max(0, len(first)-digits)], 0
	for _, m := range Members(children, []string{LeaseName}) {
		if m.Name[:len(m.Name)-digits] == head && m.Seq >= lease.Seq && m.Seq-lease.Seq < int64(k) {
			found++
		}
	}
	if !ok || found != k {
		return Missing
	}
	return Front
}
