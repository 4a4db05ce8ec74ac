// Package frames applies every fault to every frame. A scenario of acquire, queue, handover and
// release runs once without faults and is recorded; then each frame of the recording meets each
// kind of fault that applies to it. No frame can be forgotten. The same list runs in virtual time
// on the test server, also with pairs of faults, and in real time on a real server. The package has
// no code but its tests.
//
//	go test ./internal/frames -frames.every=1
//	ZKLOCK_TEST_REAL=1 go test -race -run TestFrames_RealServer ./internal/frames
package frames

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/zklock/zklock/internal/zkserver"
)

// I7: no goroutine is left.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(zkserver.RunFunction))
}
