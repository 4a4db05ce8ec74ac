package queue

import (
	"slices"
	"strings"
)

// A semaphore has a queue, and beside it leases: a child for each permit that is in use or about to be. Who is in front of the queue makes
// leases and waits for room. Others make some only if there is room for those who come first (HaveRoom), and do not wait with them. So the
// line stays in order, and a freed permit wakes one. Exclusion does not rest on that: it is PlaceOfLeases alone that grants.

// LeaseName is what Curator's semaphore calls a lease, before its number. A child of another name is no lease.
const LeaseName = "lease-"

// OtherThanSemaphore returns a child of a semaphore's path that a lock of another kind has made there, or "": the semaphore's own nodes are
// further down. kazoo's reader has a name of its own, and its semaphore's nodes are 32 hexadecimal digits.
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

// PlaceOfLeases decides where the leases that one transaction made stand among all. They are in front if no more than limit leases
// stand up to the last of them, in the order of their numbers. Others may be made behind them, and those ahead only go: so what is in
// front stays there, whatever the limit becomes.
//
// Order decides and not the count: if two clients make leases for one permit, one is in front. (Curator's counts: if its inner lock
// is broken, both wait.)
func PlaceOfLeases(mine, children []string, limit int) Place {
	ours := make(map[string]bool, len(mine))
	for _, name := range mine {
		ours[name] = true
	}
	numbers := make(map[int64]bool, len(mine)) // ours
	ms, last, found := Members(children, []string{LeaseName}), Member{}, 0
	for _, m := range ms {
		if ours[m.Name] {
			found++
			numbers[m.Seq] = true
			if found == 1 || m.Seq > last.Seq {
				last = m
			}
		}
	}
	if found < len(mine) {
		return Place{Kind: Missing}
	}
	p, isTwin := Place{Kind: Front}, false
	var predecessor, past Member
	for _, m := range ms {
		if m.PastTheEnd() && (ours[m.Name] || m.Seq < 0) {
			past = m
		}
		if ours[m.Name] {
			continue
		}
		isTwin = isTwin || numbers[m.Seq]
		if m.Seq < last.Seq {
			p.Ahead++
			if predecessor.Name == "" || m.Seq > predecessor.Seq {
				predecessor = m
			}
		}
	}
	switch {
	case past.Name != "":
		p = Place{Kind: Exhausted}
		if !ours[past.Name] {
			p.Predecessor = strings.Clone(past.Name)
		}
		return p
	case isTwin:
		return Place{Kind: Twin}
	case p.Ahead+len(mine) > limit:
		p.Kind = Behind
	}
	p.Predecessor = strings.Clone(predecessor.Name)
	return p
}

// HaveRoom says whether there is room for k leases beside those that are there, and one for each of those who come first and have none yet
// (Without). Who stands in the queue lists it before the leases, and makes its own then. Who does not stand there makes its leases, and then
// lists both: what it found before could be of a time when nobody waited. Who takes permits meanwhile goes from one list to the other, and so
// is in one of them at least. One who wants more than one counts as one until its leases are there.
func HaveRoom(leases, ahead, k, limit int) bool { return leases+ahead+k <= limit }

// Without returns how many in the queue ahead of self have no leases; of the whole queue, if self is "". The leases of who stands in the
// queue have the protection id of its node there. (Those of Curator's client do not: it counts twice for a moment.)
func Without(self string, queued, leases, markers []string) (ahead int) {
	has := make(map[string]bool, len(leases))
	for _, name := range leases {
		if id, ok := ProtectionID(name); ok {
			has[id] = true
		}
	}
	own, isQueued := Parse(self, markers)
	for _, m := range Members(queued, markers) {
		if id, _ := ProtectionID(m.Name); !has[id] && (!isQueued || ByNumber(m, own) < 0) {
			ahead++
		}
	}
	return ahead
}

// NamesBehind returns the names of the nodes behind self, which may be gone, in the order of their numbers.
func NamesBehind(self string, children, markers []string) (names []string) {
	own, _ := Parse(self, markers)
	ms := slices.DeleteFunc(Members(children, markers), func(m Member) bool { return ByNumber(m, own) <= 0 })
	slices.SortFunc(ms, ByNumber)
	for _, m := range ms {
		names = append(names, strings.Clone(m.Name))
	}
	return names
}

// SeenLeases says for those who only look on, and do not know the limit, whether the k leases that one transaction made are there: first,
// and those of its id whose numbers follow. Then it returns Front, and otherwise Missing. A larger k takes no more time.
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
