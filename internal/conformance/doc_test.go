// Package conformance compares zktest's server with a real ZooKeeper, 3.8.0 or one of those that
// zktest.WithVersion supports: random operations on both, with every reply and every event
// compared; and the recipes together with other clients' in one queue. docs/curator/parity.md lists
// our counterpart of each of Curator's methods and tests. The package has no code but its tests.
//
//	go test ./internal/conformance -args -ops 50000 -seed 7
//	ZKLOCK_CONFORMANCE=1 go test -run TestInterop_Killed ./internal/conformance -grants=2000
//
// The environment sets the same for a run by make: ZKLOCK_CONFORMANCE_OPS, ZKLOCK_CONFORMANCE_SEED.
// The real server is the installed one, or the one in ZOOKEEPER_HOME. Without a server the tests
// are skipped with the reason, or fail if ZKLOCK_REQUIRE=1. The comparison with the transcripts of
// real servers in testdata is never skipped.
package conformance
