package queue

// Who holds, for those who only look on.

// HoldersOf says of each member of a queue, which are in the order of ByNumber, whether it holds or is about to: who is in front; the readers
// that only readers are ahead of; and the reader of a writer in front that reads, too, whose number it has. Nobody holds with a number that
// is never granted.
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

// Owned is a node with what the servers say of it.
type Owned struct {
	Name           string
	Session, Token int64
}

// GrantedLeases returns how many of a semaphore's leases were granted: the first ones, in the order of their numbers. front is in front of the
// queue, and its name is empty if nobody queues.
//
// A lease that was granted is in use until it goes, whatever the limit has become. No node says that its lease was granted. But only who is
// in front can have leases that were not: those it made last, after its node in the queue, if all together are more than the limit.
func GrantedLeases(leases []Owned, front Owned, limit int) int {
	call := func(lease Owned) string { // who made it: the leases of one call have one protection id
		if id, ok := ProtectionID(lease.Name); ok {
			return id
		}
		return lease.Name
	}
	granted := len(leases)
	if granted <= limit || front.Name == "" {
		return granted
	}
	last := call(leases[granted-1])
	for granted > 0 {
		l := leases[granted-1]
		if call(l) != last || l.Session != front.Session || l.Token <= front.Token {
			break
		}
		granted--
	}
	return granted
}
