package command

// The rules of prune, over nodes as a walk has read them.

import (
	"cmp"
	bigendian "encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/queue"
)

// seenNode is a node as the walk read it. If the node may not be read, or is in a queue, only its
// path is known.
type seenNode struct {
	path      string // below the chroot
	isRead    bool
	stat      zk.Stat
	data      []byte   // if it matters
	acl       []zk.ACL // if it matters
	children  []*seenNode
	hasQueues bool // locks and leases were among them when they were listed
}

func (n *seenNode) name() string { return nameOf(n.path) }

// isPlain reports whether a node has the shape that a lock creates: it is not ephemeral, and has no
// data except what an early version of zklock left there. The record of a lock-delay is data: its
// words mean that a holder disappeared.
func (n *seenNode) isPlain() bool {
	record, isOurs := queue.ParseRecord(n.data)
	return n.isRead && n.stat.EphemeralOwner == 0 && (n.stat.DataLength == 0 || len(n.data) > 0 && isOurs && record == "")
}

// isRoot reports whether the node is a lock root that no client uses: it has had children and has
// none. Which program's lock it was cannot be determined.
func (n *seenNode) isRoot() bool {
	return n.isPlain() && len(n.children) == 0 && n.stat.NumChildren == 0 && n.stat.Cversion > 0
}

// disappeared returns the holder that the record of a lock-delay names in an empty lock root,
// otherwise "".
func (n *seenNode) disappeared() string {
	record, isOurs := queue.ParseRecord(n.data)
	if !isOurs || !n.isRead || n.stat.NumChildren > 0 {
		return ""
	}
	return record.Word(queue.HeldWord)
}

// isLimit reports whether the node is the limit of a semaphore as its first acquire created it. A
// limit that was set since then is an operator's decision.
func (n *seenNode) isLimit() bool {
	return n.isRead && n.name() == "limit" && n.stat.EphemeralOwner == 0 && n.stat.NumChildren == 0 && n.stat.Version == 0 &&
		len(n.data) == 4 && bigendian.BigEndian.Uint32(n.data) <= maxSharedLimit
}

// semaphore returns the nodes of an unused semaphore on this path: an empty queue and empty leases,
// of which at least one has had children, and the limit if it may be removed. They are removed
// together: without locks and leases, the limit's owner would be unknown.
func (n *seenNode) semaphore() (parts []*seenNode) {
	queues, used := 0, false
	for _, c := range n.children {
		switch isQueues := c.isOfSemaphore(n); {
		case isQueues && c.isPlain() && c.stat.NumChildren == 0:
			queues++
			used = used || c.stat.Cversion > 0
			parts = append(parts, c)
		case !isQueues && c.isLimit():
			parts = append(parts, c)
		}
	}
	if queues < 2 || !used {
		return nil
	}
	return parts
}

// isOfSemaphore reports whether the node is the locks or the leases of a semaphore on the path
// above.
func (n *seenNode) isOfSemaphore(above *seenNode) bool {
	return above.hasQueues && (n.name() == "locks" || n.name() == "leases")
}

// mayGo reports whether the node and everything below it may be removed, whatever their age. Nodes
// above a lock root have its ACL if they were created with it: a folder with another ACL was
// created by another program.
func (n *seenNode) mayGo() bool {
	return n.isRoot() || n.mayGoWithACL() && slices.Equal(n.acl, n.children[0].acl)
}

// mayGoWithACL reports whether a node with children meets the conditions of mayGo, apart from its
// ACL.
func (n *seenNode) mayGoWithACL() bool {
	parts := n.semaphore()
	return len(n.children) > 0 && n.isPlain() && !slices.ContainsFunc(n.children, func(c *seenNode) bool {
		return !slices.Contains(parts, c) && !c.mayGo()
	})
}

const (
	pruneLock      = "lock"
	pruneSemaphore = "semaphore"
	pruneParent    = "parent" // it is empty after the removals below it
)

// removal is deleted in one transaction: a node, or the nodes of a semaphore, with its path if that
// is removed, too.
type removal struct {
	what  string
	path  string
	nodes []*seenNode
}

type pruning struct {
	removals []removal // removals below a node come before its own
	left     []leftRoot
}

// leftRoot is an empty lock root that is not removed.
type leftRoot struct{ path, why string }

// planPruning returns the removals below top, and with withTop of top. Nothing is removed that was
// in use after before, as far as that can be determined.
func planPruning(top *seenNode, withTop bool, before time.Time) (p pruning) {
	ages := agesOf(top)
	isOld := func(n *seenNode) bool { return before.IsZero() || ages.inUse(n).Before(before) }
	isKept := func(n *seenNode) bool { return n == top && !withTop }
	old := func(ns []*seenNode) bool {
		return !slices.ContainsFunc(ns, func(n *seenNode) bool { return !isOld(n) })
	}
	var walk func(n *seenNode) bool
	walk = func(n *seenNode) bool {
		switch {
		case n.disappeared() != "":
			p.left = append(p.left, leftRoot{n.path, "its record names " + n.disappeared() + ", which disappeared: the next holder waits for the lock-delay"})
			return false
		case n.isRoot():
			goes := isOld(n) && !isKept(n)
			switch {
			case goes:
				p.removals = append(p.removals, removal{pruneLock, n.path, []*seenNode{n}})
			case isOld(n):
				p.left = append(p.left, leftRoot{n.path, "it is PATH itself, which --with-path removes"})
			}
			return goes
		}
		parts, all := n.semaphore(), true
		if !old(parts) {
			parts = nil
		}
		for _, c := range n.children {
			switch isEmpty := len(c.children) == 0; {
			case slices.Contains(parts, c):
			case c.isOfSemaphore(n) && isEmpty: // the semaphore is in use
				all = false
			default:
				all = walk(c) && all
			}
		}
		goes, isAlone := all && n.mayGo() && isOld(n) && !isKept(n), len(parts) == len(n.children)
		switch {
		case len(parts) > 0 && goes && isAlone:
			p.removals = append(p.removals, removal{pruneSemaphore, n.path, append(parts, n)})
			return true
		case len(parts) > 0:
			p.removals = append(p.removals, removal{pruneSemaphore, n.path, parts})
		}
		if goes {
			p.removals = append(p.removals, removal{pruneParent, n.path, []*seenNode{n}})
		}
		return goes
	}
	walk(top)
	return p
}

// ages has the earliest possible times of transactions. The servers store no time of a node's last
// child. But its zxid is later than the zxid of each node that was created or written before, for
// which they store the time.
type ages []event

type event struct {
	zxid int64
	at   int64 // milliseconds since 1970
}

func (e event) compare(zxid int64) int { return cmp.Compare(e.zxid, zxid) }

func agesOf(top *seenNode) (known ages) {
	var walk func(n *seenNode)
	walk = func(n *seenNode) {
		known = append(known, event{n.stat.Czxid, n.stat.Ctime}, event{n.stat.Mzxid, n.stat.Mtime})
		for _, c := range n.children {
			walk(c)
		}
	}
	walk(top)
	slices.SortFunc(known, func(a, b event) int { return a.compare(b.zxid) })
	for i := range known[1:] {
		known[i+1].at = max(known[i+1].at, known[i].at)
	}
	return known
}

// latest returns the newest time that a node has, in milliseconds since 1970.
func (known ages) latest() int64 { return known[len(known)-1].at }

// inUse returns the latest known time of a use of the node.
func (known ages) inUse(n *seenNode) time.Time {
	last := max(n.stat.Pzxid, n.stat.Mzxid, n.stat.Czxid)
	after, _ := slices.BinarySearchFunc(known, last+1, event.compare) // it is not the first: the node's own times are among them
	return time.UnixMilli(known[after-1].at)
}

// isQueued reports whether a node of that name is in a queue, or is a permit.
func isQueued(name string) bool {
	_, is := queue.Parse(name, append([]string{queue.LatchName, queue.LeaseName}, queue.Markers...))
	return is || strings.Contains(name, "__rlock__")
}
