// Package zktest provides a ZooKeeper server for tests of any code that uses ZooKeeper. The server
// runs in the test's own process, in pure Go, and implements the real protocol, so any client can
// use it. It needs no Java, no container and no fixed port, and starts in a tenth of a millisecond:
//
//	func TestService(t *testing.T) {
//		srv := zktest.Start(t) // ends with the test
//		conn, _, err := zk.Connect([]string{srv.Addr()}, 10*time.Second)
//		...
//		srv.ExpireSession(conn.SessionID()) // at once; deletes its ephemeral nodes
//		data, ok := srv.Get("/config")      // reads the server's state without a client
//	}
//
// A [Fault] describes a failure, when it happens and how often. This fault creates the second node
// but loses the reply:
//
//	srv.Inject(zktest.After(zktest.Create).Path("/locks/*").Nth(2).DropReply().Close())
//
// A fault that never fires fails the test, unless it is Optional.
//
// In a bubble of testing/synctest, a session timeout of ten seconds takes microseconds, because the
// server's only clock is package time's. TCP does not work in a bubble, but a [Network] does:
//
//	synctest.Test(t, func(t *testing.T) {
//		network := zktest.NewNetwork()
//		srv := zktest.Start(t, zktest.WithNetwork(network))
//		conn, _, err := zk.Connect([]string{srv.Addr()}, 10*time.Second, zk.WithDialer(network.Dial))
//		...
//	})
//
// docs/testing.md in the repository is a guide, which also covers the migration from testcontainers
// and from Curator's TestingServer.
//
// # More
//
//   - Actions: [Server.ExpireSession], [Server.DropConnection], [Server.Freeze],
//     [Network.Partition]. Stop and Start restart the server with the same address, nodes and
//     sessions.
//   - Inspection: Children, Get, Stat, Sessions, Watches and Requests return the current state,
//     without a client and its delays. History holds the last 100,000 changes with their sessions,
//     zxids and times, for checkers.
//   - Several servers: an [Ensemble] has lag, members that are cut off, and elections.
//   - Real servers: a [Proxy] injects the same faults for any server, and [ExpireSession] expires a
//     session there.
//   - Other languages: the command zklock serve runs this server in a process of its own, with
//     faults over HTTP.
//
// # For proofs about a lock itself
//
// [Server.CreateAs], [Server.MoveSession] and [Member.LoseTouches] cause states that no client can
// cause. zklock's own tests need them; the tests of a service do not.
//
// # Modelled behaviour
//
// The server implements every request that go-zookeeper 1.0, kazoo 2.8 and Curator 5.4 send to a
// single ZooKeeper 3.8:
//
//   - all kinds of nodes with their stats, sequence numbers up to their end at 2147483647, and the
//     reaper of containers and TTL nodes
//   - sessions with expiry on tick boundaries, re-attachment, and the passwords of the real server
//   - one-shot, persistent and recursive watches, which clients can set again after a reconnect
//   - multi and multiRead
//   - ACLs with the schemes world, ip, digest, auth and super, and sasl with DIGEST-MD5
//     ([WithSASLUsers])
//   - TLS ([WithTLS]) and quotas ([WithConfig])
//   - the zxid of every operation, whether it fails or succeeds
//   - the four-letter words, byte by byte as in the release. Only srvr works without a whitelist
//     ([WithConfig]). go-zookeeper's FLWSrvr and FLWCons cannot parse the responses of 3.7 and
//     later.
//
// A differential test compares it with ZooKeeper 3.8.0 as Debian ships it, reply by reply. Watch
// events are sent only to sessions with READ, as by that server and by 3.8.4 and later.
// [WithVersion] makes it a 3.9.3 or a 3.9.6, which are compared with Debian's packages, too.
//
// [Ensemble] adds the behaviour of several servers that matters to a lock: lag, session renewals
// that reach the leader late, servers that are cut off from the leader, elections, sessions that
// move from one server to another, and the list of members in /zookeeper/config.
//
// # Limitations
//
// The server writes nothing to disk. It has no throttling, Kerberos, ACLs by certificate, read-only
// mode, local sessions or observers, and it responds to reconfig as a server that disables it,
// which is ZooKeeper's default. A bare check outside a multi makes 3.8.0 stop responding; this
// server returns unimplemented. The server executes requests one by one, even those from different
// clients.
//
// No client sends the following requests, and the replies differ from ZooKeeper's:
//
//   - A null path fails with -5 here, without a zxid from 3.9.3 on. ZooKeeper returns -8 for
//     setData and setACL, -121 for removeWatches and, from 3.9.3 on, checkWatches, and success for
//     sync and addWatch. A write takes a zxid. A multi with a null path takes none in 3.8.0.
//   - createSession (-10) on a connection that has a session closes the connection here. ZooKeeper
//     sends a second connect response.
//   - deleteContainer (20) is unimplemented here. ZooKeeper 3.8.0 parses its body as a path without
//     a length, and 3.9 closes the connection. A bare check that fails gets its error from 3.8.0.
//   - A multiRead that contains a write fails with -5 on both sides, but ZooKeeper's reply also has
//     an empty list of results.
//   - createTTL with a TTL below 0 and the flags of another kind of node stops ZooKeeper. Here it
//     creates that node.
//   - From 3.9.3 on, a multi that ends too early takes no zxid in ZooKeeper if it contains a create
//     with a null ACL. Here it does.
//   - setWatches with a null list fails with -5 in ZooKeeper. Here the list is empty.
//   - The scheme ip accepts digits of every script in ZooKeeper, and ASCII digits here.
//   - A DIGEST-MD5 token with a maxbuf that is no number closes the connection without a reply in
//     ZooKeeper. Here the value is ignored.
//   - Characters beyond the basic plane, which no node's name may contain, are returned as UTF-8
//     and not in Java's encoding. Invalid UTF-8, which can appear in a sync or an ACL, is returned
//     unchanged and not as U+FFFD.
package zktest
