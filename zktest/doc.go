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
// server returns unimplemented. Characters beyond the basic plane, which no node's name may
// contain, are returned as UTF-8 and not in Java's encoding. Invalid UTF-8 is returned unchanged
// and not as U+FFFD. Null paths, and createSession (-10) on a connection that has a session, which
// no client sends, get different replies. The server executes requests one by one, even those from
// different clients.
package zktest
