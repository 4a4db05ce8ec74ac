// Package zklock is a mutual exclusion lock on Apache ZooKeeper, for services that must let one process at a time do a
// job. It follows the recipe and the node names of Apache Curator's InterProcessMutex, so Go and Java clients queue for
// the same lock. Beyond that recipe, a holder learns in time that it has lost the lock, and each hold has a fencing
// token.
//
//	s, err := zklock.Connect(ctx, "zk1:2181,zk2:2181,zk3:2181")
//	m, err := zklock.NewMutex(s, "/locks/orders")
//	err = m.Do(ctx, func(ctx context.Context) error { // waits its turn
//		hold, _ := m.HoldFrom(ctx)
//		return work(ctx, hold.Token()) // ctx ends when the lock is lost
//	})
//
// # What is promised
//
// The code that keeps a promise, and the tests that attack it, cite it by its number. docs/faults.md explains the R and F
// numbers that tests also cite.
//
// I1, exclusion: among live lock nodes at most one holds. Tokens strictly increase in the order of the grants, for
// ever: across sessions, lock roots that were made again, and the end of the 2^31 sequence numbers.
//
// I2, one node: an owner has at most one node per lock path. Re-entry creates none. One exception: if the servers do not let
// a ZooKeeper session that was given up be ended, its node stays until it expires, beside the node of the next session.
//
// I3, own node: a grant rests on a node that is there and that the current ZooKeeper session created.
//
// I4, no orphans: a node that was given up is deleted, before the call returns or by the reaper after it, whatever
// failed in between. One exception: if the answer to a create is lost, and the servers carry the create out only more than
// T/3 after zklock has looked for it, the node stays until its ZooKeeper session ends.
//
// I5, loss is told in time: a holder is told that it has lost the lock before the ensemble can give the lock to
// another, under the assumptions of its lease mode (below). Where an assumption fails, the token still protects a
// resource that checks it. A person or program may take the lock away on purpose, by deleting the node or by ending the
// ZooKeeper session at the servers. Then nobody waits for the holder: it is told when its client hears of it.
//
// I6, bounded: every call returns when its context ends, plus at most one short grace, and when the Session is closed.
// Release and Close end by themselves, also when no server answers and no context ends. Nothing hangs.
//
// I7, no growth: goroutines, watches and memory do not grow with the number of cycles, time-outs or failures.
//
// I8, fair: grants follow the queue. One release wakes one waiter, and lets the one after it look.
//
// # What is not promised
//
// A pause between a check and a write. The scheduler, the garbage collector or a hypervisor can stop a process after it
// looked at [Hold.Err] and before its write arrives, for longer than the lease. No client can prevent that. A resource
// can, if it refuses smaller tokens than it has seen: use [Hold.Token] for that, and [Hold.Check] where the resource is
// ZooKeeper itself.
//
// Servers that lose data. An ensemble that is started empty, or from an older snapshot or backup, has forgotten lock
// nodes and counts its transactions from an earlier number. Exclusion is then broken, and so is the order of tokens.
//
// Exclusion against other clients past the end of the sequence counter. ZooKeeper's counter for a lock root stops at
// 2147483647. The clients of this package then order by creation transaction. Curator, go-zookeeper's Lock and kazoo do
// not, and may let several in. If the name of its node shows such a client, the result is [ErrSequenceExhausted].
// Curator's names are ours, so they do not show it. Do not share a lock with other clients there.
//
// Exclusion in one lock among goroutines that share the context of a hold of that lock ([Hold.Context], and contexts
// derived from it) or an owner set with [WithOwner]: they re-enter it. Everybody else contends, also under a hold of
// another lock.
//
// Re-entry through another [Session]. A hold belongs to its Session. A caller that acquires the same lock under it
// through a second Session waits for the hold, and so for itself if it has that hold.
//
// Protection from people and programs that break the rules. A program with DELETE on the lock root can delete a holder's
// node. A program that reaches the servers can end any ZooKeeper session whose id it knows. The next in the queue is
// granted at once. The holder hears of a deletion within a heartbeat, and of the end of its session when its client has
// connected again, within about a second. A program with WRITE on the lock root can forge the record by which the waiters
// of a long queue know who released: one may then be let in beside a holder, whom nobody tells.
//
// Clocks that do not count suspend. A lease must not stand still while the machine sleeps. On Linux the kernel tells the
// time in suspend. On macOS it is computed from the time of the boot, which the kernel moves when somebody sets the wall
// clock. On Windows Go's own clock counts it. On other systems nothing counts it: after a suspend there, only the token
// protects.
//
// # The lease
//
// ZooKeeper ends a session, and gives its locks away, when it has not heard from it for the session timeout T. The
// servers count that time and the client cannot ask them. So a [Session] computes the lease, a time up to which the
// session is surely alive, from the requests that were answered and when they were sent. A hold is lost when its lease
// ends, even if no server could be asked. [Hold.Deadline] tells when that would be. All modes assume that
//
//   - the servers keep what they have acknowledged;
//   - all servers clamp session timeouts to the same limits: T is the smallest that one of them has granted in the
//     session, and a client does not know the smaller limit of a server whose answer got lost;
//   - this machine's clock is at most 1 % slower than theirs;
//   - a timer of this process fires within 50 ms or, if it does not, the holder looks (Err of the hold or its context,
//     Deadline) before it acts.
//
// [QuorumLease], the default, counts a frame only if it was answered at least G before the sending of a write that
// succeeded on the same connection. It assumes that the leader pings each healthy follower at least every G, and
// learns from the answer which sessions the follower has heard. G is 4 s unless told otherwise: two ticks of
// ZooKeeper's default tickTime. Servers with a longer tickTime need a longer G.
//
// [SingleServerLease] counts every answered frame. It assumes that there is one server. With more servers, a follower
// that is cut off from the others goes on answering, and a holder connected to it is told too late.
//
// docs/lease.md helps to choose the mode and the session timeout.
//
// # Words
//
// The same words are used in the code, the errors and the log.
//
//   - lock path, lock root: the znode that is contended for; its children are the queue
//   - node: an ephemeral sequential child of the root, ours
//   - sequence: the ten digits at the end of a node's name
//   - place: front, or behind a predecessor
//   - owner: who may re-enter
//   - hold: one successful acquire, released once
//   - token: the czxid of the lock node, for fencing
//   - protection id: the uuid in a node's name; by it we find a create whose answer was lost
//   - unknown: sent, and not answered
//   - suspended: not connected, the ZooKeeper session may be alive; lost: the session is over for us
//   - lease: how long the session is surely alive
//   - reaper: makes lock nodes and deletes them, in the background where that does not succeed at once
//   - participant: any node in a queue, of any client
//   - record: what a release leaves in the data of the lock root if the queue is long: who released
//
// And these in the code:
//
//   - frame: a request, an answer or an event, as bytes; exchange: a request and its answer, as two times
//   - tap: the connection as the ZooKeeper client sees it, which sends our frames between the client's
//   - fate: what became of a request: never sent, answered, or sent without an answer
//   - link: the connections of a Session, one after the other, and its state
//   - era: one ZooKeeper session with its lease and holds; tenant: who holds under the lease
//   - acquisition: what the calls of one owner share while they wait for a lock; attempt: what carries it out;
//     pursuit: how far its node has come; walk: what that does next
//   - handle: one call's share in an acquisition, and from the grant on in the hold
//   - standing: the place in the queue, as last listed
//   - evidence, ruling: what a waiter knows when its predecessor's event comes, and what follows
//   - leaving: a record on its way into the lock root
//   - turn: what a release passes to the next node, if it stands directly behind and is of the same ZooKeeper session
//   - creation: the making of one node, tried until its outcome is known; erasure: its deletion, tried until it is gone;
//     stray: a create that was looked for and not found
//   - beat: a heartbeat, or a cheap read where nothing is held
package zklock
