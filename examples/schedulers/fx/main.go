// Command fx is a program with several replicas that uses go.uber.org/fx. One of them leads and
// works. fx ends its parts in order: the work, then the Session.
//
//	cd examples/schedulers && ZKLOCK_SERVERS=127.0.0.1:2181 go run ./fx
package main

import (
	"context"
	"log"
	"os"
	"time"

	"go.uber.org/fx"

	"github.com/zklock/zklock"
)

type servers string

// work is the leader's job. It returns when its context ends.
type work func(ctx context.Context, hold *zklock.Hold) error

func main() {
	fx.New(module, fx.Supply(servers(os.Getenv("ZKLOCK_SERVERS")), work(func(ctx context.Context, _ *zklock.Hold) error {
		log.Print("leading")
		<-ctx.Done() // your work, until then
		return context.Cause(ctx)
	}))).Run()
}

var module = fx.Options(fx.Provide(newSession, newElection), fx.Invoke(stand))

// newSession connects, so that the parts that need a Session can be created.
func newSession(lc fx.Lifecycle, addrs servers) (*zklock.Session, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	s, err := zklock.Connect(ctx, string(addrs))
	if err != nil {
		return nil, err
	}
	lc.Append(fx.StopHook(s.Close)) // fx stops the part that was created first last
	return s, nil
}

func newElection(s *zklock.Session) (*zklock.Election, error) {
	return zklock.NewElection(s, "/elections/sweep")
}

// stand has the program campaign from its start to its stop, which waits for the work.
func stand(lc fx.Lifecycle, program fx.Shutdowner, election *zklock.Election, lead work) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	campaign := func() {
		defer close(ended)
		if err := election.Campaign(ctx, lead); ctx.Err() == nil { // the end was not requested
			log.Print("campaign: ", err)
			_ = program.Shutdown(fx.ExitCode(1))
		}
	}
	lc.Append(fx.StartStopHook(func() { go campaign() }, func(stopping context.Context) error {
		cancel()
		select {
		case <-ended:
			return nil
		case <-stopping.Done():
			return stopping.Err()
		}
	}))
}
