// Package conformance holds zktest's server against a real ZooKeeper, 3.8.0 or one of those that zktest.WithVersion knows:
// random operations on both, every reply and every event compared; and the recipes beside other clients' in one queue.
// parity.md has what stands for each of Curator's methods and tests. The package has no code but its tests.
//
//	go test ./internal/conformance -args -ops 50000 -seed 7
//	ZKLOCK_CONFORMANCE=1 go test -run TestInterop_Killed ./internal/conformance -grants=2000
//
// The environment does the same for a run by make: ZKLOCK_CONFORMANCE_OPS, ZKLOCK_CONFORMANCE_SEED. The real
// server is the installed one, or that of ZOOKEEPER_HOME. Without one the tests are skipped with the reason, or fail if
// ZKLOCK_REQUIRE=1. What is never skipped is the comparison with the transcripts of real servers' answers in testdata.
package conformance
