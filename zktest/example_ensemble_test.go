package zktest_test

import (
	"fmt"

	"github.com/zklock/zklock/zktest"
)

func ExampleStartEnsemble() {
	// In a test: func TestService(t *testing.T) {
	t := &exampleTB{}
	defer t.end()
	ensemble := zktest.StartEnsemble(t, 3)
	ensemble.Leader().Isolate()
	fmt.Println(ensemble.Leader())
	ensemble.Heal()
	fmt.Println(ensemble.Leader().ID())
	// Output:
	// <nil>
	// 3
}

func ExampleStartProxy() {
	// In a test: func TestService(t *testing.T) {
	t := &exampleTB{}
	defer t.end()
	srv := zktest.Start(t) // or any server's address
	proxy := zktest.StartProxy(t, srv.Addr())
	fault := proxy.Inject(zktest.After(zktest.Create).DropReply().Close().Optional())
	fmt.Println(fault, fault.Fired())
	// Output: After(create).DropReply().Close().Optional() 0
}
