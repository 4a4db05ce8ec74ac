package conformance

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// I7: no goroutine is left. In a process that TestInterop_Killed starts, no test runs.
func TestMain(m *testing.M) {
	if args := os.Getenv(mixedWorker); args != "" {
		os.Exit(workMixed(args))
	}
	goleak.VerifyTestMain(m)
}
