// Package zklock provides distributed locks backed by Apache ZooKeeper, for services in which only
// one process at a time may do a job. It has mutexes, read/write locks, semaphores, elections, and
// sets of locks. All use the recipes and node names of Apache Curator, so Go and Java clients queue
// for the same lock. A holder is notified of a loss before the next client is granted the lock, and
// each hold has a fencing token.
//
//	s, err := zklock.Connect(ctx, "zk1:2181,zk2:2181,zk3:2181")
//	m, err := zklock.NewMutex(s, "/locks/orders")
//	err = m.Do(ctx, func(ctx context.Context, hold *zklock.Hold) error { // waits for the lock
//		return work(ctx, hold.Token()) // ctx ends when the lock is lost
//	})
//
// A [Session] is the connection to the servers, for all locks of a process. A [Mutex] is a lock on
// a path. An [RWMutex] is a lock that readers share. A [Hold] is one successful acquire, with its
// token and its context.
//
// # What to call
//
//   - to run a job under the lock: [Mutex.Do], or [Mutex.TryDo] to run it only if the lock is free
//   - to run a job once for each day or order: [Mutex.Once]
//   - to acquire several locks, all or none: [NewMulti], then [Multi.Do]
//   - to acquire and release in separate steps: [Mutex.Acquire], then [Hold.Release]
//   - to check the hold before a critical step: [Hold.Err]
//   - to let a resource reject a stale holder: [Hold.Token]; if the resource is
//     ZooKeeper, [Hold.Checks]; if it can query ZooKeeper, [Hold.Sequencer]
//   - to stop slow work before the lease ends: [Hold.DeadlineContext]
//   - to re-enter the lock in a nested call: pass a context from [WithOwner], with [Hold.Owner]
//   - to elect a leader, and to observe which process leads: [NewElection], [Election.Run],
//     [Election.Observe]
//   - to let several clients hold at a time: [NewSemaphore], or [NewRWMutex] for readers
//   - to turn untrusted input into a lock path: [PathOf]
//   - to list the holder and the waiters: [Mutex.Participants]; to ask the holder to release:
//     [Session.Revoke]
//   - to follow the state of the Session: [Session.Changes]; for metrics and spans: [WithTrace]
//   - to distinguish errors: errors.Is with [ErrLost] and the other sentinels; in retry loops,
//     [IsFinal]; for the node and its position in the queue, [Error]
//
// # What is promised
//
// Each promise has a number, which its code and the tests that attack it cite.
//
// I1, exclusion: at most one live lock node holds the lock. Tokens strictly increase in the order
// of the grants, across sessions, and across lock roots that were deleted and created again.
// Readers of a read/write lock may hold together. A writer excludes all other owners, but may also
// hold as a reader. A writer's token is larger than the tokens of all earlier holders, and a
// reader's is larger than the tokens of all earlier writers. Readers' tokens are not ordered.
//
// I2, one node: an owner has at most one node per lock path, and re-entry creates none. A writer
// that also reads has a second node until both locks are released.
//
// I3, own node: a grant rests on a node that exists and that the current ZooKeeper session created.
//
// I4, no orphans: a node that is no longer needed is deleted, before the call returns or in the
// background after it, whatever failed in between.
//
// I5, timely notification of a loss: a holder is notified that it has lost the lock before the
// servers can grant it to another client, under the assumptions of its lease mode. If an assumption
// fails, the token still protects a resource that compares tokens.
//
// I6, bounded calls: every call returns within half a second after its context ends or the Session
// is closed. Release and Close return on their own, even if no server responds and no context
// ends.
//
// I7, no growth: goroutines, watches and memory do not grow with the number of cycles, timeouts or
// failures. A node of another client is watched only while a caller of the [Session] waits for it,
// and a lock root for up to twice the session timeout after the last acquire.
//
// I8, fairness: grants follow the queue. A release wakes the next waiter, or all readers up to the
// next writer. docs/design.md lists the other waiters that a release notifies.
//
// # What is not promised
//
// docs/reliability.md has the details.
//
//   - That no pause occurs between a check and a write. After a process has checked [Hold.Err], the
//     scheduler, the garbage collector or a hypervisor can stop it for longer than the lease lasts.
//     No client can prevent that, but a resource can, if it rejects a token that is smaller than
//     the largest it has seen: use [Hold.Token] or [Hold.Checks].
//   - Exclusion after servers have lost data: an ensemble that is started empty, or from an old
//     snapshot or backup.
//   - A lock past the end of its sequence counter: after 2^31 nodes in a queue that was never
//     empty, Acquire returns [ErrSequenceExhausted] until the queue has drained.
//   - Exclusion among goroutines that share an owner ([WithOwner]): they re-enter the lock.
//   - Protection from programs that delete a holder's node, or end or change its ZooKeeper session.
//   - A timely notification where no clock runs during a suspend: on systems other than Linux,
//     macOS and Windows, and in a virtual machine that its hypervisor pauses.
//
// # The lease
//
// The servers expire a ZooKeeper session, and delete its lock nodes, when the client has been
// silent for the session timeout T. So a [Session] computes a lease, the time until which the
// session is guaranteed to exist, from the times when it sent the requests that were answered. A
// hold is lost when its lease ends ([Hold.Deadline]), even if no server can be reached. Both lease
// modes assume that
//
//   - the servers keep what they have acknowledged;
//   - all servers have the same limits for session timeouts;
//   - this machine's clock is at most 1 % slower than the servers' clocks;
//   - a timer of this process fires at most 50 ms late, or the holder checks (Err of the hold or of
//     its context, or Deadline) before it acts.
//
// [QuorumLease], the default, counts a reply only if the client sent a write on the same connection
// at least G after it, and that write succeeded. It assumes that the leader pings each healthy
// follower at least every G, and learns from the reply which sessions the follower has heard from.
// G is 4 s by default, two ticks of ZooKeeper's default tickTime. A longer tickTime needs a longer
// G.
//
// [SingleServerLease] counts every reply. It assumes that there is one server: with more, a
// follower that is cut off from the leader continues to reply.
//
// docs/lease.md helps to choose the mode and the session timeout.
//
// # The API
//
// The types and errors of github.com/go-zookeeper/zk in this API are part of it until version 2.0:
// [zk.Conn], [zk.ACL], [zk.Dialer], [zk.CheckVersionRequest], and the errors zk.Err… that an error
// of this package wraps.
//
// A nil or zero Session, Mutex, RWMutex, Semaphore, Election, Multi, Hold or MultiHold is unusable:
// each method returns a final error that names the function to call instead. A method without an
// error result panics with that error.
package zklock
