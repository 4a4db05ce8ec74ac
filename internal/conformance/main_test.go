package conformance

import (
	"testing"

	"go.uber.org/goleak"
)

// I7: no goroutine is left.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
