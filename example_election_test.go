package zklock_test

// The examples of elections.

import (
	"context"
	"errors"
	"fmt"
	"log"
	"path"
	"strings"

	"github.com/zklock/zklock"
)

// One replica of a service leads for one term; then the next does. lead runs again after a loss,
// and Campaign returns the error that lead returns while it leads.
func ExampleElection_Campaign() {
	ctx, s, stop := exampleSession()
	defer stop()
	e, err := zklock.NewElection(s, "/elections/billing", zklock.WithData([]byte("replica-1")))
	if err != nil {
		log.Fatal(err)
	}
	err = e.Campaign(ctx, func(ctx context.Context, hold *zklock.Hold) error {
		fmt.Println("leading; token:", hold.Token() > 0)
		return errors.New("the disk is full") // until ctx ends, in the field
	})
	fmt.Println(err, zklock.IsFinal(err))
	// Output:
	// leading; token: true
	// the disk is full false
}

// A replica is a candidate for as long as it runs: Run campaigns again after each term, with
// growing pauses.
func ExampleElection_Run() {
	ctx, s, stop := exampleSession()
	defer stop()
	e, err := zklock.NewElection(s, "/elections/billing")
	if err != nil {
		log.Fatal(err)
	}
	term := 0
	err = e.Run(ctx, func(ctx context.Context, hold *zklock.Hold) error {
		term++
		fmt.Println("term", term)
		if term < 3 {
			return errors.New("the database is unavailable") // another replica may lead now
		}
		return zklock.Final(errors.New("the database has an unknown schema")) // this program cannot lead
	})
	fmt.Println(err, zklock.IsFinal(err))
	// Output:
	// term 1
	// term 2
	// term 3
	// the database has an unknown schema true
}

// Health: a replica leads, follows, or does not know. Hold answers from memory.
func ExampleElection_Hold() {
	ctx, s, stop := exampleSession()
	defer stop()
	e, err := zklock.NewElection(s, "/elections/billing")
	if err != nil {
		log.Fatal(err)
	}
	health := func() string {
		switch {
		case e.Hold() != nil: // compares the clock with the lease
			return "leads"
		case s.Stats().Server != "":
			return "follows"
		}
		return "neither"
	}

	fmt.Println(health())
	_ = e.Campaign(ctx, func(context.Context, *zklock.Hold) error {
		fmt.Println(health())
		return nil
	})
	fmt.Println(health())
	_ = s.Close()
	fmt.Println(health())
	// Output:
	// follows
	// leads
	// follows
	// neither
}

// A leader that is asked to give way finishes its step, resigns, and may queue again at the tail.
// At the end of a process, call Resign before Close in the same way.
func ExampleElection_Resign() {
	ctx, s, stop := exampleSession()
	defer stop()
	var e *zklock.Election
	e, err := zklock.NewElection(s, "/elections/billing",
		zklock.WithRevocation(func(*zklock.Hold) { _ = e.Resign(ctx) }))
	if err != nil {
		log.Fatal(err)
	}
	err = e.Campaign(ctx, func(lead context.Context, hold *zklock.Hold) error {
		if err := s.Revoke(ctx, hold.Node()); err != nil { // from anywhere; Leader tells the node
			return err
		}
		<-lead.Done()
		fmt.Println(context.Cause(lead), "- still the leader:", hold.Err() == nil)
		return nil // now the next is elected
	})
	fmt.Println(err)
	// Output:
	// resigned - still the leader: true
	// <nil>
}

func ExampleElection_Leader() {
	ctx, s, stop := exampleSession()
	defer stop()
	e, err := zklock.NewElection(s, "/elections/billing", zklock.WithData([]byte("replica-1")))
	if err != nil {
		log.Fatal(err)
	}
	leader, err := e.Leader(ctx)
	fmt.Println("there is a leader:", leader.Node != "", err)
	_ = e.Campaign(ctx, func(ctx context.Context, hold *zklock.Hold) error {
		leader, err := e.Leader(ctx)
		fmt.Println(string(leader.Data), leader.Token == hold.Token(), err)
		all, err := e.Candidates(ctx)
		fmt.Println(len(all), err)
		return nil
	})
	// Output:
	// there is a leader: false <nil>
	// replica-1 true <nil>
	// 1 <nil>
}

// Observers of the leader are notified of each change.
func ExampleElection_Observe() {
	ctx, s, stop := exampleSession()
	defer stop()
	e, err := zklock.NewElection(s, "/elections/billing", zklock.WithData([]byte("replica-1")))
	if err != nil {
		log.Fatal(err)
	}
	campaign, resign := context.WithCancel(ctx)
	defer resign()
	leads, ended := make(chan struct{}), make(chan error, 1)
	var now zklock.Leadership
	for now, err = range e.Observe(ctx) {
		switch {
		case err != nil: // ctx has ended, or the leader stays unknown until an administrator changes something
			log.Fatal(err)
		case now.Unknown: // an outage: send nothing to the last leader
			fmt.Println("nobody knows")
			continue
		case now.Node != "":
			fmt.Println("requests go to", string(now.Data))
			<-leads // it is in front: it leads, or is about to
			resign()
			continue
		}
		fmt.Println("no leader")
		if campaign.Err() != nil {
			fmt.Println(<-ended)
			return
		}
		go func() {
			ended <- e.Campaign(campaign, func(ctx context.Context, _ *zklock.Hold) error {
				close(leads)
				<-ctx.Done()
				return nil
			})
		}()
	}
	// Output:
	// no leader
	// requests go to replica-1
	// no leader
	// <nil>
}

// A candidate next to Java's LeaderLatch.
func ExampleWithLatchNodes() {
	ctx, s, stop := exampleSession()
	defer stop()
	e, err := zklock.NewElection(s, "/elections/billing", zklock.WithLatchNodes())
	if err != nil {
		log.Fatal(err)
	}
	err = e.Campaign(ctx, func(ctx context.Context, hold *zklock.Hold) error {
		fmt.Println(strings.Contains(path.Base(hold.Node()), "-latch-"))
		return nil
	})
	fmt.Println(err)
	// Output:
	// true
	// <nil>
}
