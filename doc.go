// Package zklock has locks on Apache ZooKeeper, for services that must let one process at a time do a job: a mutex, a
// read/write lock, a semaphore, several locks at once, elections. They follow the recipes and the node names of Apache
// Curator, so Go and Java clients queue for the same lock. Beyond those recipes, a holder is notified of a loss in time, and
// each hold has a fencing token.
//
//	s, err := zklock.Connect(ctx, "zk1:2181,zk2:2181,zk3:2181")
//	m, err := zklock.NewMutex(s, "/locks/orders")
//	err = m.Do(ctx, func(ctx context.Context, hold *zklock.Hold) error { // waits for its turn
//		return work(ctx, hold.Token()) // ctx ends when the lock is lost
//	})
//
// A [Session] is one connection, for all locks of a process. A [Mutex] is a lock on a path, an [RWMutex] a lock that
// readers hold together. A [Hold] is one successful acquire, with its token and its context.
//
// # What to call
//
//   - to run a job under the lock: [Mutex.Do], or [Mutex.TryDo] if nobody is ahead
//   - to run a job once, for each day or order, on whatever host: [Mutex.Once]; if its runs have no
//     name, [WithMinHold]
//   - to run it under several locks, all or none: [NewMulti], then [Multi.Do]
//   - to take and give back in steps: [Mutex.Acquire] or [Mutex.TryAcquire], then [Hold.Release]
//   - to look before a step that cannot be undone: [Hold.Err]
//   - to have a resource refuse a holder that is too late: [Hold.Token]; where the resource is
//     ZooKeeper, [Hold.Check]
//   - to have a resource ask whether the hold of a request is still there: [Hold.Sequencer],
//     [Session.CheckSequencer]
//   - to stop slow work before the lease ends: [Hold.DeadlineContext]
//   - to take the lock again further down: the same with the context of Do or [Hold.Context], or one from [WithOwner]
//   - to have one process lead, and others know which: [NewElection], [Election.Campaign], [Election.Observe]
//   - to let several hold at a time: [Semaphore.Acquire]
//   - to let readers in together: [NewRWMutex], whose two sides have the same methods
//   - to make a path of a name that others choose, with whatever is in it: [PathOf]
//   - to see who holds and who waits: [Mutex.Participants]; to ask the holder to give way:
//     [Session.Revoke]
//   - to know the state of the Session: [Session.State], [Session.Changes]; what it logs:
//     [WithLogger]
//   - to see what its locks do, in metrics and spans: [WithTrace], [Session.Stats]
//   - to tell errors apart: errors.Is with [ErrLost] and the others, [IsFinal] and [Final] in
//     loops; [Error] has the node and its position
//
// # What is promised
//
// The code that keeps a promise, and the tests that attack it, cite it by its number.
//
// I1, exclusion: among live lock nodes at most one holds. Tokens strictly increase in the order of the grants, for ever:
// across sessions, and across lock roots that were deleted and made again. In a read/write lock, readers may hold together,
// but nobody beside a writer except its own owner, as a reader. A writer's token is larger than those of all earlier holders,
// a reader's larger than those of all earlier writers; readers are not ordered among each other.
//
// I2, one node: an owner has at most one node per lock path. Re-entry creates none. A writer that reads has a second one,
// until both locks are released. There are three exceptions. After a Release with [ErrNotConfirmed], or an acquire that failed,
// the node may still be there for a while (I4), and after the release of one with [WithMinHold] it stays: then the owner's next
// acquire makes another, and queues behind the first until that is gone. And if the servers refuse to end a ZooKeeper session
// that was given up, or do not answer when they are asked to, its node stays until the session expires, ahead of the node of the
// next session.
//
// I3, own node: a grant rests on a node that exists and that the current ZooKeeper session created.
//
// I4, no orphans: a node that was given up is deleted, before the call returns or in the background after it, whatever
// failed in between. There is one exception: if the answer to a create is lost and the servers carry it out more than T/3 after the
// search for its node, the node stays until its ZooKeeper session ends. If they refuse to list the lock root, it cannot be
// found, and stays until they list it again.
//
// I5, notified of a loss in time: a holder is notified that it has lost the lock before the ensemble can give the lock to
// another, under the assumptions of its lease mode (below). Where an assumption fails, the token still protects a resource
// that checks it. A person or program may take the lock away on purpose, by deleting the node or by ending the ZooKeeper
// session at the servers. Then the next holder does not wait, and the old one is notified when its client hears of it.
//
// I6, bounded: every call returns when its context ends, plus at most half a second, and when the Session is closed.
// Release and Close end by themselves, also when no server answers and no context ends. Nothing hangs.
//
// I7, no growth: goroutines, watches and memory do not grow with the number of cycles, time-outs or
// failures. When no caller of a [Session] waits for a node of another client any more, the Session
// does not watch it any more.
//
// I8, fair: grants follow the queue. One release wakes one waiter, and lets the one after it look.
// A writer's release wakes all readers up to the next writer, and also notifies readers behind up
// to three more writers. A reader's release notifies the next writer; if no other node is between
// the two, it notifies the writer after that as well, which then looks.
//
// # What is not promised
//
// That no pause falls between a check and a write. The scheduler, the garbage collector or a hypervisor can stop a process
// after it looked at [Hold.Err] and before its write arrives, for longer than the lease. No client can prevent that. A
// resource can, if it refuses a smaller token than it has seen: use [Hold.Token] for that, and [Hold.Check] where the
// resource is ZooKeeper itself.
//
// Servers that lose data. An ensemble that is started empty, or from an older snapshot or backup, has forgotten lock
// nodes and counts its transactions from an earlier number. Exclusion is then broken, and so is the order of tokens.
//
// A lock past the end of the sequence counter. ZooKeeper counts the nodes of a lock root up to 2147483647. zklock starts the
// counter again, when the queue is empty, from 2^31 − 2^27 nodes on. If the queue is never empty until 2^31 − 2^20, nobody is
// granted from there on: Acquire returns [ErrSequenceExhausted] until the queue has drained and the root was removed. Then
// another try succeeds. If clients of other packages share a lock there, exclusion is not promised.
//
// Exclusion in one lock among goroutines that share the context of a hold of that lock
// ([Hold.Context], and contexts derived from it) or an owner set with [WithOwner], because they
// re-enter it, unless the lock is [WithoutReentry]. All other calls contend, even under a hold of
// another lock.
//
// Re-entry through another [Session]. A hold belongs to its Session. A caller that acquires the same lock under it
// through a second Session waits for the hold, and therefore for itself if the hold is its own.
//
// Protection from people and programs that break the rules. A program with DELETE on the lock root
// can delete a holder's node. A program that reaches the servers can end any ZooKeeper session
// whose id it knows. The next in the queue is granted at once. A program that attaches to the
// session with a shorter timeout, and does not end it, shortens the timeout without the holder's
// knowledge. The holder is notified of a deletion within a heartbeat, and of the end of its session
// when its client has connected again, within about a second.
//
// Clocks that do not count suspend. A lease must not stand still while the machine sleeps. On Linux
// the kernel reports the time in suspend. On macOS it is computed from the time of the boot, which
// the kernel moves when somebody sets the wall clock. On Windows Go's own clock counts it. On other
// systems nothing counts it: after a suspend there, only the token protects. The same is true when
// a hypervisor pauses a virtual machine, migrates it or resumes it from a snapshot: none of the
// guest's clocks, CLOCK_BOOTTIME included, is guaranteed to count that time.
//
// # The lease
//
// ZooKeeper ends a session, and gives its locks away, when it has not heard from it for the session timeout T. The
// servers count that time and the client cannot ask them. So a [Session] computes the lease, a time up to which the
// session is guaranteed to be alive, from the requests that were answered and when they were sent. A hold is lost when its
// lease ends, even if no server could be asked. [Hold.Deadline] is that time. Both modes assume that
//
//   - the servers keep what they have acknowledged;
//   - all servers clamp session timeouts to the same limits: T is the smallest that one of them has granted in the
//     session, and a client does not know the smaller limit of a server whose answer was lost;
//   - this machine's clock is at most 1 % slower than theirs;
//   - a timer of this process fires within 50 ms or, if it does not, the holder looks (Err of the hold or its context,
//     Deadline) before it acts.
//
// [QuorumLease], the default, counts an answer only if it came at least G before the sending of a write that succeeded on
// the same connection. It assumes that the leader pings each healthy follower at least every G, and learns from the reply
// which sessions the follower has heard. G is 4 s unless set otherwise: two ticks of ZooKeeper's default tickTime. Servers
// with a longer tickTime need a longer G.
//
// [SingleServerLease] counts every answer. It assumes that there is one server. With more servers, a follower that is cut
// off from the others goes on answering, and a holder connected to it is notified too late.
//
// docs/lease.md helps to choose the mode and the session timeout.
//
// # The API
//
// The types and errors of github.com/go-zookeeper/zk in this API are part of it, and will not be
// replaced before version 2.0: [zk.Conn], [zk.ACL], [zk.Dialer], [zk.CheckVersionRequest], and the
// errors zk.Err… in the chain of an error.
//
// A nil or zero Session, Mutex, RWMutex, Semaphore, Election, Multi, Hold or MultiHold is unusable:
// each of its methods returns a final error that names the function to call instead, or panics with
// that error if it has no error result.
package zklock
