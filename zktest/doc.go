// Package zktest is a ZooKeeper server for tests, of whatever code that uses ZooKeeper. It runs in the test's own process, in
// pure Go, and speaks the real protocol, so any client can use it. It needs no Java, no container and no fixed port, and
// starts in a tenth of a millisecond:
//
//	func TestService(t *testing.T) {
//		srv := zktest.Start(t) // ends with the test
//		conn, _, err := zk.Connect([]string{srv.Addr()}, 10*time.Second)
//		...
//		srv.ExpireSession(conn.SessionID()) // now: the session's nodes go, and its client learns of it
//		data, ok := srv.Get("/config")      // what the server has, without a client
//	}
//
// A [Fault] says what goes wrong, when and how often. This one has the second node created and its reply lost:
//
//	srv.Inject(zktest.After(zktest.Create).Path("/locks/*").Nth(2).DropReply().Close())
//
// One that never fired fails the test, unless it is Optional.
//
// A session that takes ten seconds to expire takes microseconds in a bubble of testing/synctest: the server's only clock is
// package time's. TCP does not work in there, and a [Network] does:
//
//	synctest.Test(t, func(t *testing.T) {
//		network := zktest.NewNetwork()
//		srv := zktest.Start(t, zktest.WithNetwork(network))
//		conn, _, err := zk.Connect([]string{srv.Addr()}, 10*time.Second, zk.WithDialer(network.Dial))
//		...
//	})
//
// docs/testing.md in the repository is a guide, also from testcontainers and Curator's TestingServer.
//
// # More
//
//   - Act at once: [Server.ExpireSession], [Server.DropConnection], [Server.Freeze], [Network.Partition]; Stop and Start are a
//     restart, with the same address, nodes and sessions.
//   - Look in: Children, Get, Stat, Sessions, Watches and Requests show the state as it is, without a client and its delays.
//     History holds the last 100,000 changes with their sessions, zxids and times, for checkers.
//   - Several servers: an [Ensemble] has lag, members that are cut off, and elections.
//   - Real servers: a [Proxy] brings the same faults to any server, and [ExpireSession] ends a session there.
//   - Other languages: the command zklock serve is this server in a process of its own, with faults by HTTP.
//
// # For proofs about a lock itself
//
// [Server.CreateAs], [Server.MoveSession] and [Member.LoseTouches] bring about what no client can. zklock's own tests need
// them, a service's test does not.
//
// # What is modelled
//
// Everything that go-zookeeper 1.0, kazoo 2.8 and Curator 5.4 send to a single ZooKeeper 3.8: all kinds of nodes with their
// stats, sequences (up to their end at 2147483647) and the reaper of containers and TTL nodes; sessions with expiry on tick
// boundaries, re-attachment, and the passwords of the real server; one-shot, persistent and recursive watches, and setting them
// again after a reconnect; multi and multiRead; ACLs with the schemes world, ip, digest, auth and super, and sasl with
// DIGEST-MD5 ([WithSASLUsers]); TLS ([WithTLS]); quotas ([WithEnforcedQuotas]); the zxids of every operation that fails or
// succeeds; the four-letter words, with the bytes of the release, which go-zookeeper's FLWSrvr and FLWCons cannot read since
// 3.7, and of which srvr alone is answered without [WithWhitelist]. A differential test compares it with ZooKeeper 3.8.0 as
// Debian ships it, reply by reply. Watch events go only to sessions with READ, as on that server and on 3.8.4 and later.
// [WithVersion] makes it a 3.9.3 or a 3.9.6, compared with those as Debian ships them.
//
// [Ensemble] adds what matters to a lock on several servers: lag, leases of sessions that reach the leader late, servers
// that are cut off from it, elections, sessions that move from one server to another, and the members in /zookeeper/config.
//
// # What is not
//
// The server writes nothing to disk. It has no throttling, Kerberos, ACLs by certificate, read-only mode, local sessions or
// observers, and reconfig is answered as where it is disabled, which is ZooKeeper's default. A bare check outside a multi makes
// 3.8.0 fall silent; here the answer is unimplemented. Characters beyond the basic plane, which no node may have in its name,
// come back as UTF-8 and not in Java's way, and invalid UTF-8 comes back as it is, and not with U+FFFD. Null paths, and
// createSession (-10) on a connection that has a session, which no client sends, get other replies. The server does requests
// one by one, those of different clients too.
package zktest
