// Package zklock provides distributed locks backed by Apache ZooKeeper, for services in which one
// process at a time must do a job: a mutex, a read/write lock, a semaphore, several locks at once,
// and elections. They use the recipes and the node names of Apache Curator, so Go and Java clients
// queue for the same lock. In addition, a holder is notified of a loss before the next client is
// granted the lock, and each hold has a fencing token.
//
//	s, err := zklock.Connect(ctx, "zk1:2181,zk2:2181,zk3:2181")
//	m, err := zklock.NewMutex(s, "/locks/orders")
//	err = m.Do(ctx, func(ctx context.Context, hold *zklock.Hold) error { // waits for the lock
//		return work(ctx, hold.Token()) // ctx ends when the lock is lost
//	})
//
// A [Session] is the connection to the servers, for all locks of a process. A [Mutex] is a lock on
// a path, and readers share an [RWMutex]. A [Hold] is one successful acquire, with its token and
// its context.
//
// # What to call
//
//   - to run a job under the lock: [Mutex.Do], or [Mutex.TryDo] to run it only if the lock is free;
//     once for each day or order: [Mutex.Once]
//   - under several locks, all or none: [NewMulti], then [Multi.Do]
//   - to acquire and release in separate steps: [Mutex.Acquire], then [Hold.Release]
//   - to check the hold before a critical step: [Hold.Err]
//   - to let a resource reject a holder that is too late: [Hold.Token]; if the resource is
//     ZooKeeper, [Hold.Check]; if it can query ZooKeeper, [Hold.Sequencer]
//   - to stop slow work before the lease ends: [Hold.DeadlineContext]
//   - to re-enter the lock in a nested call: pass the context of Do or [Hold.Context], or one from
//     [WithOwner]; to reject such calls: [WithoutReentry]
//   - to elect a leader, and to observe which process leads: [NewElection], [Election.Run],
//     [Election.Observe]
//   - to let several clients hold at a time: [NewSemaphore]; readers: [NewRWMutex]
//   - to turn untrusted input into a lock path: [PathOf]
//   - to list the holder and the waiters: [Mutex.Participants]; to ask the holder to release:
//     [Session.Revoke]
//   - to follow the state of the Session: [Session.Changes]; metrics and spans: [WithTrace]
//   - to distinguish errors: errors.Is with [ErrLost] and the other sentinels, [IsFinal] in loops;
//     [Error] has the node and its position in the queue
//
// # What is promised
//
// The code that keeps a promise, and the tests that attack it, cite its number. The exceptions are
// listed in docs/reliability.md.
//
// I1, exclusion: at most one live lock node holds the lock. Tokens strictly increase in the order
// of the grants, across sessions, and across lock roots that were deleted and created again. Readers
// of a read/write lock may hold together, but no client holds beside a writer except its own owner,
// as a reader. A writer's token is larger than the tokens of all earlier holders, and a reader's is
// larger than the tokens of all earlier writers. Readers' tokens are not ordered.
//
// I2, one node: an owner has at most one node per lock path, and re-entry creates none. A writer
// that also reads has a second one until both locks are released.
//
// I3, own node: a grant rests on a node that exists and that the current ZooKeeper session created.
//
// I4, no orphans: a node that is no longer needed is deleted, before the call returns or in the
// background after it, whatever failed in between.
//
// I5, timely notification of a loss: a holder is notified that it has lost the lock before the
// servers can grant it to another client, under the assumptions of its lease mode (see below). If
// an assumption fails, the token still protects a resource that compares tokens. A client that
// deletes the node or ends the ZooKeeper session on purpose defeats the promise.
//
// I6, bounded calls: every call returns within half a second after its context ends or the Session
// is closed. Release and Close return by themselves, even if no server responds and no context
// ends.
//
// I7, no growth: goroutines, watches and memory do not grow with the number of cycles, timeouts or
// failures. A node of another client is watched only while a caller of the [Session] waits for it.
//
// I8, fairness: grants follow the queue. A release wakes the next waiter, or all readers up to the
// next writer. docs/design.md lists the waiters that it also notifies.
//
// # What is not promised
//
// docs/reliability.md has the details.
//
//   - That no pause occurs between a check and a write. The scheduler, the garbage collector or a
//     hypervisor can stop a process after it has checked [Hold.Err] for longer than the lease lasts.
//     No client can prevent that, but a resource can, if it rejects a token that is smaller than
//     the largest it has seen: use [Hold.Token], or [Hold.Check] if the resource is ZooKeeper.
//   - Exclusion after servers have lost data: an ensemble that is started empty, or from an old
//     snapshot or backup.
//   - A lock past the end of its sequence counter, 2^31 nodes in a queue that was never empty: then
//     Acquire returns [ErrSequenceExhausted] until the queue has drained.
//   - Exclusion among goroutines that share the context of a hold of the same lock ([Hold.Context],
//     and contexts derived from it) or an owner ([WithOwner]), because they re-enter the lock,
//     unless it is [WithoutReentry]. All other callers exclude each other.
//   - Protection from programs that delete a holder's node, or end or change its ZooKeeper session.
//   - A timely notification where no clock includes a suspend: on systems other than Linux, macOS
//     and Windows, and in a virtual machine that its hypervisor pauses.
//
// # The lease
//
// The servers expire a ZooKeeper session, and delete its lock nodes, when the client has been silent
// for the session timeout T. So a [Session] computes a lease, the time until which the session is
// guaranteed to exist, from the times when it sent the requests that were answered. A hold is lost
// when its lease ends ([Hold.Deadline]), even if no server can be reached. Both lease modes assume
// that
//
//   - the servers keep what they have acknowledged;
//   - all servers limit session timeouts alike;
//   - this machine's clock is at most 1 % slower than the servers' clocks;
//   - a timer of this process fires within 50 ms, or the holder checks (Err of the hold or of its
//     context, or Deadline) before it acts.
//
// [QuorumLease], the default, counts a reply only if the client sent a write on the same connection
// at least G later, and that write succeeded. It assumes that the leader pings each healthy follower
// at least every G, and learns from the reply which sessions the follower has heard from. G is 4 s
// by default, two ticks of ZooKeeper's default tickTime. A longer tickTime needs a longer G.
//
// [SingleServerLease] counts every reply. It assumes that there is one server: with more, a follower
// that is cut off from the leader continues to reply.
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
// each method returns a final error that names the function to call instead, or panics with that
// error if it returns none.
package zklock
