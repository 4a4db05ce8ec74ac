package zklock_test

// Recipes that need no code of the library's own: docs/recipes.md and docs/curator.md link to each.

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock"
)

// takeNumber takes one of the numbers from 0 to n-1, which no other process has until the hold
// ends. A host usually gets the number that it had before.
func takeNumber(ctx context.Context, s *zklock.Session, root, host string, n int) (int, *zklock.Hold, error) {
	hash := fnv.New32a()
	hash.Write([]byte(host))
	for i := range n {
		number := (int(hash.Sum32()%uint32(n)) + i) % n
		m, err := zklock.NewMutex(s, zklock.PathOf(root, strconv.Itoa(number)))
		if err != nil {
			return 0, nil, err
		}
		hold, err := m.TryAcquire(ctx)
		if !errors.Is(err, zklock.ErrNotAcquired) { // ErrNotConnected: every number may be free
			return number, hold, err
		}
	}
	return 0, nil, fmt.Errorf("all %d numbers are in use: %w", n, zklock.ErrNotAcquired)
}

func Example_numberOfOnesOwn() {
	ctx, s, stop := exampleSession()
	defer stop()
	taken := map[int]bool{}
	for range 3 {
		number, hold, err := takeNumber(ctx, s, "/workers/numbers", "host-a", 3)
		if err != nil {
			log.Fatal(err)
		}
		defer hold.Release(ctx) // the number is this process's until hold.Context() ends
		taken[number] = true
	}
	_, _, err := takeNumber(ctx, s, "/workers/numbers", "host-a", 3)
	fmt.Println(taken, err)
	// Output: map[0:true 1:true 2:true] all 3 numbers are in use: lock not acquired: another client is ahead
}

// leadFirst is Run for the preferred replica. While another candidate leads, it requests the
// leadership, until the queue has reached this replica.
func leadFirst(ctx context.Context, s *zklock.Session, e *zklock.Election, name string,
	lead func(ctx context.Context, hold *zklock.Hold) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // this replica requests nothing when it is no candidate any more
	go func() {
		for leader, err := range e.Observe(ctx) {
			if err == nil && leader.Node != "" && string(leader.Data) != name {
				if err := s.Revoke(ctx, leader.Node); err != nil {
					log.Print("the leader was not asked to resign: ", err)
				}
			}
		}
	}()
	return e.Run(ctx, lead)
}

func Example_preferredLeader() {
	ctx, s, stop := exampleSession()
	defer stop()
	ctx, end := context.WithCancel(ctx)
	defer end()
	terms := make(chan string)
	lead := func(name string) func(ctx context.Context, _ *zklock.Hold) error {
		return func(ctx context.Context, _ *zklock.Hold) error {
			select {
			case terms <- name:
			case <-ctx.Done():
			}
			<-ctx.Done()
			return nil
		}
	}
	var other *zklock.Election
	other, err := zklock.NewElection(s, "/elections/billing", zklock.WithData([]byte("replica-2")),
		zklock.WithRevocation(func(*zklock.Hold) { _ = other.Resign(ctx) })) // each replica gives way
	if err != nil {
		log.Fatal(err)
	}
	go other.Run(ctx, lead("replica-2"))
	fmt.Println(<-terms)

	preferred, err := zklock.NewElection(s, "/elections/billing", zklock.WithData([]byte("replica-1")))
	if err != nil {
		log.Fatal(err)
	}
	go leadFirst(ctx, s, preferred, "replica-1", lead("replica-1"))
	for name := range terms { // replica-2 may have another term, if it queues again first
		if name == "replica-1" {
			fmt.Println(name)
			return
		}
	}
	// Output:
	// replica-2
	// replica-1
}

// announce keeps an ephemeral node at path until ctx ends, and then deletes it; if that fails, the
// node remains until its session ends. The parent must exist.
func announce(ctx context.Context, conn *zk.Conn, path string, data []byte) {
	for ctx.Err() == nil {
		_, err := conn.Create(path, data, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		if err == nil || errors.Is(err, zk.ErrNodeExists) { // ErrNodeExists: perhaps of an earlier session
			if exists, stat, changed, err := conn.ExistsW(path); err == nil && exists {
				select {
				case <-changed: // also when the session has ended
				case <-ctx.Done():
					if stat.EphemeralOwner == conn.SessionID() {
						_ = conn.Delete(path, stat.Version)
					}
				}
				continue
			}
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// cacheChildren calls update with the names of the children of path, and again after each change,
// until ctx ends. During an outage the last names remain.
func cacheChildren(ctx context.Context, conn *zk.Conn, path string, update func(names []string)) {
	for ctx.Err() == nil {
		names, _, changed, err := conn.ChildrenW(path)
		var again <-chan time.Time
		if err == nil {
			update(names)
		} else { // also if the node does not exist
			again = time.After(time.Second)
		}
		select {
		case <-changed: // also when the session has ended
		case <-again:
		case <-ctx.Done():
		}
	}
}

// A member of a service is announced by a node, and found through a cache. Both survive the
// expiry of the session.
func Example_persistentNode() {
	ctx, srv, stop := exampleZooKeeper()
	defer stop()
	s, err := zklock.Connect(ctx, srv.Addr()) // a Session that holds no locks
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	if err := srv.Load(map[string]string{"/members": ""}); err != nil {
		log.Fatal(err)
	}
	lists := make(chan []string)
	go cacheChildren(ctx, s.Conn(), "/members", func(names []string) { lists <- names })
	fmt.Println(<-lists)

	announcing, leave := context.WithCancel(ctx)
	go announce(announcing, s.Conn(), "/members/a", []byte("10.0.0.7:8080"))
	fmt.Println(<-lists)
	first, _ := srv.Stat("/members/a")
	srv.ExpireSession(first.EphemeralOwner)
	for names := range lists {
		if now, ok := srv.Stat("/members/a"); len(names) == 1 && ok && now.EphemeralOwner != first.EphemeralOwner {
			fmt.Println(names, "in the next session")
			break
		}
	}
	leave()
	for names := range lists {
		if len(names) == 0 {
			fmt.Println(names)
			return
		}
	}
	// Output:
	// []
	// [a]
	// [a] in the next session
	// []
}

// A semaphore with one permit is a lock that an operator can pause.
func Example_onePermit() {
	ctx, s, stop := exampleSession()
	defer stop()
	imports, err := zklock.NewSemaphore(s, "/semaphores/imports", 1, zklock.WithSharedLimit("/semaphores/imports/limit"))
	if err != nil {
		log.Fatal(err)
	}
	work := func(context.Context, *zklock.Hold) error { return nil }
	for _, limit := range []int{0, 1} {
		if err := imports.SetLimit(ctx, limit); err != nil {
			log.Fatal(err)
		}
		fmt.Println(limit, imports.Do(ctx, 1, work, zklock.WaitAtMost(0)) == nil)
	}
	// Output:
	// 0 false
	// 1 true
}

// charge is an HTTP handler that works under a lock. A lock that is held is no outage.
func charge(m *zklock.Mutex, work func(ctx context.Context, hold *zklock.Hold) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := m.Do(r.Context(), work, zklock.WaitAtMost(time.Second))
		switch {
		case errors.Is(err, zklock.ErrNotAcquired):
			http.Error(w, "another request is charging this order", http.StatusConflict)
		case errors.Is(err, zklock.ErrNotConnected):
			w.Header().Set("Retry-After", "10")
			http.Error(w, "the lock service is unavailable", http.StatusServiceUnavailable)
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}
}

func Example_handler() {
	ctx, srv, stop := exampleZooKeeper()
	defer stop()
	s, err := zklock.Connect(ctx, srv.Addr())
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	m, err := zklock.NewMutex(s, zklock.PathOf("/locks/orders", "4711"), zklock.WithContainer())
	if err != nil {
		log.Fatal(err)
	}
	handler := charge(m, func(context.Context, *zklock.Hold) error { return nil })
	post := func() {
		w := httptest.NewRecorder()
		handler(w, httptest.NewRequest(http.MethodPost, "/orders/4711/charge", nil))
		fmt.Println(w.Code, w.Header()["Retry-After"])
	}
	post()
	other, err := m.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	post()
	_ = other.Release(ctx)
	srv.Stop() // an outage
	post()
	// Output:
	// 200 []
	// 409 []
	// 503 [10]
}

// candidacy is what a row of the next example needs.
type candidacy struct {
	s   *zklock.Session
	e   *zklock.Election
	end func() // ends the caller's context
}

// errorOf returns the error of Campaign or Run if the first call of lead does act. A second call
// returns a final error.
func errorOf(ctx context.Context, servers string, act func(c candidacy) error,
	call func(*zklock.Election, context.Context, func(context.Context, *zklock.Hold) error) error) error {
	s, err := zklock.Connect(ctx, servers)
	if err != nil {
		return err
	}
	defer s.Close()
	e, err := zklock.NewElection(s, "/elections/billing")
	if err != nil {
		return err
	}
	caller, end := context.WithCancel(ctx)
	defer end()
	terms := 0
	err = call(e, caller, func(ctx context.Context, _ *zklock.Hold) error {
		if terms++; terms == 2 {
			return zklock.Final(errors.New("a second term"))
		}
		if err := act(candidacy{s, e, end}); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	})
	if ours := new(zklock.Error); errors.As(err, &ours) {
		return ours.Err // without the node's name
	}
	return err
}

// Campaign and Run end after different events. Each line has the errors of both; a second term
// means that the call continued.
func Example_endsOfCampaignAndRun() {
	ctx, srv, stop := exampleZooKeeper()
	defer stop()
	failed := errors.New("the work failed")
	for _, row := range []struct {
		event string
		act   func(c candidacy) error // nil: lead waits until its context ends
	}{
		{"lead fails", func(candidacy) error { return failed }},
		{"lead fails finally", func(candidacy) error { return zklock.Final(failed) }},
		{"Resign", func(c candidacy) error { go c.e.Resign(ctx); return nil }},
		{"lost", func(c candidacy) error { srv.ExpireSession(c.s.Conn().SessionID()); return nil }},
		{"the caller's context ends", func(c candidacy) error { c.end(); return nil }},
		{"the Session is closed", func(c candidacy) error { go c.s.Close(); return nil }},
	} {
		campaign := errorOf(ctx, srv.Addr(), row.act, (*zklock.Election).Campaign)
		fmt.Println(row.event, "|", campaign, "|", errorOf(ctx, srv.Addr(), row.act, (*zklock.Election).Run))
	}
	// Output:
	// lead fails | the work failed | a second term
	// lead fails finally | the work failed | the work failed
	// Resign | resigned: context canceled | a second term
	// lost | a second term | a second term
	// the caller's context ends | context canceled | context canceled
	// the Session is closed | lock lost: session closed | lock lost: session closed
}
