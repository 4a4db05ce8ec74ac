// Package zktest is a ZooKeeper server for tests: in the test's own process, in pure Go, speaking the real
// protocol, so that any client can use it.
//
//	srv := zktest.Start(t)
//	conn, _, err := zk.Connect([]string{srv.Addr()}, 10*time.Second)
//
// docs/testing.md in the repository is a guide to it, with a service's test for the loss of its session in thirty lines.
//
// # Time
//
// The server has no clock but package time's. On a [Network] it shares a testing/synctest bubble with its client
// and the code under test, and then a session that takes ten seconds to expire takes microseconds:
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
// A [Fault] is a value that says what goes wrong, when and how often. It prints as it is written, and one that
// never fired fails the test:
//
//	srv.Inject(zktest.After(zktest.Create).Path("/locks/*").Nth(2).DropReply().Close())
//
// [Proxy] does the same in front of any server, and [ExpireSession] ends a session on any. Besides, a test can
// act at once: [Server.ExpireSession], [Server.DropConnection], [Server.MoveSession], [Server.Freeze],
// [Server.BumpEpoch], [Network.Partition].
//
// # Looking in
//
// Children, Get, Stat, Sessions, Watches and Requests show the state as it is, without a client and its
// delays; History holds every change with its session, zxid and time: the truth for checkers.
//
// # What is modelled
//
// Everything that go-zookeeper 1.0, kazoo 2.8 and Curator 5.4 send to a single ZooKeeper 3.8: all kinds of
// nodes with their stats, sequences (up to their end at 2147483647) and the reaper of containers and TTL nodes;
// sessions with expiry on tick boundaries, re-attachment, and the passwords of the real server; one-shot,
// persistent and recursive watches, and setting them again after a reconnect; multi and multiRead; ACLs with the
// schemes world, ip, digest, auth and super; the zxids of every operation that fails or succeeds; four-letter
// words. A differential test holds it against ZooKeeper 3.8.0 as Debian ships it, reply by reply; like that, and
// like 3.8.4 and later, it tells only those of a change who may read the node. [WithVersion] makes it a 3.9.3 or a 3.9.6, held
// against those as Debian ships them, but for what is not in the next section.
//
// [Ensemble] adds what matters to a lock of several servers: lag, leases of sessions that reach the leader
// late, servers cut off from it, elections.
//
// # What is not
//
// Nothing is written to disk. There are no quotas, no throttling, no limits on connections, no SASL and no TLS,
// no read-only mode, no local sessions, no observers; reconfig answers that it is disabled. A bare check outside a
// multi, which makes 3.8.0 fall silent, is answered as unimplemented. Characters beyond the basic plane, which no
// node may have in its name, are echoed as UTF-8 and not in Java's way. Several requests of one client are never
// done at the same time, and those of different clients are done one by one.
//
// As a 3.9 it keeps 3.8's persistent watches, checkWatches and removeWatches, its ACLs without IPv6, and its answers
// to a multi with creates that no client sends.
package zktest
