// Package lossy attacks the lock on one real server, from behind connections that fail: every client reaches the server
// through a proxy of its own that understands frames, while admins and the server itself do their worst. It also
// takes a real server's sequence counter to its end. It has no code but its tests.
//
//	ZKLOCK_CHAOS=1 go test -v ./internal/lossy
//	ZKLOCK_CHAOS=1 go test -v -timeout 0 -run TestReal_Faults ./internal/lossy -lossy.grants=500000
//
// The same tests run against the in-process server, shorter, without being asked for.
package lossy
