// Package zktest is a ZooKeeper server for tests: in the test's own process, in pure Go, speaking the real
// protocol, so that any client can use it.
//
//	srv := zktest.Start(t)
//	conn, _, err := zk.Connect([]string{srv.Addr()}, 10*time.Second)
package zktest
