// Package zktest is a ZooKeeper server for tests. It runs in the test's own process, in pure Go, and speaks the real
// protocol, so any client can use it.
//
//	srv := zktest.Start(t)
//	conn, _, err := zk.Connect([]string{srv.Addr()}, 10*time.Second)
//
// docs/testing.md in the repository is a guide to it. It tests a service for the loss of its session in thirty lines.
//
// # Time
//
// The server's only clock is package time's. On a [Network] it shares a testing/synctest bubble with its client and the
// code under test. A session that takes ten seconds to expire then takes microseconds:
//
//	synctest.Test(t, func(t *testing.T) {
//		network := zktest.NewNetwork()
//		srv := zktest.Start(t, zktest.WithNetwork(network))
//		conn, _, err := zk.Connect([]string{srv.Addr()}, 10*time.Second, zk.WithDialer(network.Dial))
//		...
//	})
//
// # Faults
//
// A [Fault] is a value that says what goes wrong, when and how often. It prints as it is written. A fault that never
// fired fails the test:
//
//	srv.Inject(zktest.After(zktest.Create).Path("/locks/*").Nth(2).DropReply().Close())
//
// [Proxy] does the same in front of any server, and [ExpireSession] ends a session on any server. A test can also act at
// once: [Server.ExpireSession], [Server.DropConnection], [Server.MoveSession], [Server.Freeze],
// [Server.BumpEpoch], [Network.Partition].
//
// # A view inside
//
// Children, Get, Stat, Sessions, Watches and Requests show the state as it is, without a client and its delays. History
// holds every change with its session, zxid and time, for checkers.
//
// # What is modelled
//
// Everything that go-zookeeper 1.0, kazoo 2.8 and Curator 5.4 send to a single ZooKeeper 3.8: all kinds of
// nodes with their stats, sequences (up to their end at 2147483647) and the reaper of containers and TTL nodes;
// sessions with expiry on tick boundaries, re-attachment, and the passwords of the real server; one-shot,
// persistent and recursive watches, and setting them again after a reconnect; multi and multiRead; ACLs with the
// schemes world, ip, digest, auth and super; the zxids of every operation that fails or succeeds; four-letter
// words. A differential test compares it with ZooKeeper 3.8.0 as Debian ships it, reply by reply. Watch events go only to
// sessions with READ, as on that server and on 3.8.4 and later. [WithVersion] makes it a 3.9.3 or a 3.9.6, compared with
// those as Debian ships them, except for the differences in the next section.
//
// [Ensemble] adds what matters to a lock on several servers: lag, leases of sessions that reach the leader late, servers
// that are cut off from it, elections.
//
// # What is not
//
// The server writes nothing to disk. It has no quotas, throttling, limits on connections, SASL, TLS, read-only mode, local
// sessions or observers, and reconfig answers that it is disabled. A bare check outside a multi makes 3.8.0 fall silent;
// here the answer is unimplemented. Characters beyond the basic plane, which no node may have in its name, come back as
// UTF-8 and not in Java's way. The server does requests one by one, those of different clients too.
//
// As a 3.9 it keeps 3.8's persistent watches, checkWatches and removeWatches, its ACLs without IPv6, and its answers
// to a multi with creates that no client sends.
package zktest
