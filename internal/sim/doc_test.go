// Package sim is the simulation: random worlds of servers, clients and faults in virtual time, each
// from a seed, judged from outside by the records of the servers and the clients (I1 to I8). The
// package has no code but its tests.
//
//	go test -v -timeout 0 -run TestVirtual_Simulation ./internal/sim -sim.seeds=2000 -sim.jobs=2
package sim

import (
	"testing"

	"go.uber.org/goleak"
)

// I7: no goroutine is left.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
