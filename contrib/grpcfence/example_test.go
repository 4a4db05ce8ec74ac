package grpcfence_test

// The handler that asks again before it writes, as a program.

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/zklock/zklock/contrib/grpcfence"
	"github.com/zklock/zklock/fence"
)

// A call takes a while, and a later holder is granted meanwhile. The handler asks again before it
// writes.
func ExampleAdmit() {
	gate := &fence.Gate{Guard: fence.NewGuard(fence.NewMemory(1000)), Parse: parse} // for zklock's holds: zkfence.Parse, zkfence.Check
	intercept := grpcfence.UnaryServer(gate, func(context.Context, string, any) (string, bool) { return "/locks/report", true })
	save := func(ctx context.Context, _ any) (any, error) {
		_ = gate.Admit(ctx, "/locks/report", []string{"exclusive 23 /locks/report"}) // B
		if err := grpcfence.Admit(ctx); err != nil {
			return nil, err
		}
		return "saved", nil
	}

	ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs(grpcfence.Key, "exclusive 17 /locks/report")) // A
	_, err := intercept(ctx, "A's report", &grpc.UnaryServerInfo{}, save)
	fmt.Println(err)
	// Output: rpc error: code = FailedPrecondition desc = fence: stale: token 17 of /locks/report comes after token 23
}
