package queue

// The holders of a queue, as observers see them.

// HoldersOf reports for each member of a queue, sorted by ByNumber, whether it holds or is about
// to: the first node; readers with only readers before them; and the reader's node with the
// number of a first node that is a writer (the writer also took the read lock). No node holds whose
// number is never granted.
func HoldersOf(ms []Member) []bool {
	holds := make([]bool, len(ms))
	readersOnly := true // so far
	for i, m := range ms {
		isReader := IsReader(m.Name)
		holds[i] = !m.PastTheEnd() && (i == 0 || isReader && (readersOnly || m.Seq == ms[0].Seq))
		readersOnly = readersOnly && isReader
	}
	return holds
}

// Owned is a node with its metadata from the servers.
type Owned struct {
	Name           string
	Session, Token int64
}

// GrantedLeases returns how many of a semaphore's leases were granted: the first ones, in the order
// of their numbers. first is the first node in the queue; its name is empty if the queue is.
//
// A granted lease is in use until it is deleted, whatever the limit has become. No node records
// that its lease was granted. But only the first client in the queue can have leases that were not:
// the leases that it created last, after its node in the queue, if all together exceed the limit.
func GrantedLeases(leases []Owned, first Owned, limit int) int {
	call := func(lease Owned) string { // its call: all leases of one call have the same protection id
		if id, ok := ProtectionID(lease.Name); ok {
			return id
		}
		return lease.Name
	}
	granted := len(leases)
	if granted <= limit || first.Name == "" {
		return granted
	}
	last := call(leases[granted-1])
	for granted > 0 {
		l := leases[granted-1]
		if call(l) != last || l.Session != first.Session || l.Token <= first.Token {
			break
		}
		granted--
	}
	return granted
}
