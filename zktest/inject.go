package zktest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/zklock/zklock/internal/wire"
)

// Injection is a [Fault] that has been injected.
type Injection struct {
	fault    Fault
	err      error // why it was rejected; then it is in no set
	set      *faultSet
	released chan struct{} // closed by Release
	hit      chan struct{} // closed when it first fires

	// guarded by set.mu
	random  *rand.Rand // for Chance
	matched int
	fired   int
	removed bool
}

// String returns the fault as it would be written.
func (i *Injection) String() string { return i.fault.String() }

// Fired returns how often the fault has fired.
func (i *Injection) Fired() int {
	i.set.mu.Lock()
	defer i.set.mu.Unlock()
	return i.fired
}

// Err returns the reason for which [Server.Inject] rejected the fault, or nil.
func (i *Injection) Err() error { return i.err }

// Wait returns when the fault has fired for the first time, or with the context's cause if the
// context ends before. For a rejected fault it returns [Injection.Err].
func (i *Injection) Wait(ctx context.Context) error {
	if i.err != nil {
		return i.err
	}
	select {
	case <-i.hit:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("zktest: %v has not fired: %w", i, context.Cause(ctx))
	}
}

// Release ends every wait of the fault's Hold; from then on Hold has no effect.
func (i *Injection) Release() {
	i.set.mu.Lock()
	defer i.set.mu.Unlock()
	if !isClosed(i.released) {
		close(i.released)
	}
}

// Remove ends the fault and releases what it holds. At the end of the test, the fault still counts
// as fired or not.
func (i *Injection) Remove() {
	i.set.mu.Lock()
	i.removed = true
	if i.fired > 0 || i.fault.optional {
		// It has fired or is optional, so the end of the test does not check it. Match nothing with
		// it from now on.
		i.set.list = slices.DeleteFunc(i.set.list, func(o *Injection) bool { return o == i })
	}
	i.set.mu.Unlock()
	i.Release()
}

// faultSet holds the faults of one server, ensemble or proxy.
type faultSet struct {
	t    TB         // nil outside tests
	mu   sync.Mutex // a leaf: no call and no wait while it is held
	list []*Injection

	onFrame func(Frame)
}

// Inject activates a fault. It rejects a fault that can never have an effect, such as
// Before(Create).DropReply(). That fails the test if the server or proxy was started for one
// ([Start], [StartEnsemble], [StartProxy]). If not, the fault never fires, and [Injection.Err]
// returns the reason. A fault that has not fired by the end of its test fails that test, unless it
// is Optional.
func (s *faultSet) Inject(f Fault) *Injection {
	if f.chance != 0 && f.seed == 0 {
		f.seed = rand.Uint64()
		if s.t != nil {
			s.t.Helper()
			s.t.Logf("zktest: seed of %v", f)
		}
	}
	i := &Injection{fault: f, err: f.check(), set: s, released: make(chan struct{}), hit: make(chan struct{})}
	i.random = rand.New(rand.NewPCG(f.seed, 0))
	if i.err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.list = append(s.list, i)
	} else if s.t != nil {
		s.t.Helper()
		s.t.Fatalf("%v", i.err)
	}
	return i
}

// server is a server, ensemble or proxy that can be started for a test.
type server interface {
	Close()
	faults() *faultSet
}

func (s *faultSet) faults() *faultSet { return s }

// started ties the result of a New function to a test: faults that are rejected or never fire fail
// the test. The end of the test closes the server, and logs the server's state if the test has
// failed.
func started[S server](t TB, s S, err error) S {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
		return s
	}
	s.faults().t = t
	t.Cleanup(func() {
		t.Helper()
		for _, i := range s.faults().unfired() {
			t.Errorf("zktest: %v never fired", i)
		}
		if f, ok := t.(interface{ Failed() bool }); ok && f.Failed() {
			if s, ok := any(s).(interface{ Dump() string }); ok {
				t.Logf("zktest: at the end of %s\n%s", t.Name(), s.Dump())
			}
		}
		s.Close()
	})
	return s
}

// active reports whether any fault can match. If not, the caller need not parse a request's paths.
func (s *faultSet) active() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.list) > 0 || s.onFrame != nil
}

func (s *faultSet) unfired() []*Injection {
	s.mu.Lock()
	defer s.mu.Unlock()
	var never []*Injection
	for _, i := range s.list {
		if i.fired == 0 && !i.fault.optional {
			never = append(never, i)
		}
	}
	return never
}

// verdict is the combined effect of all faults that fire at one happening.
type verdict struct {
	close      bool
	dropReply  bool
	drop       bool
	expire     bool
	duplicates int
	fail       wire.Code
	freeze     time.Duration // of the whole server
	freezeOne  time.Duration // of the member to which the connection leads
	wait       wait
}

// wait lists the conditions that must pass before something continues: calls first, then time, then
// releases.
type wait struct {
	calls  []func()
	called <-chan struct{} // instead of calls, which run elsewhere; closed when they have returned
	delay  time.Duration
	gates  []<-chan struct{}
}

func (w wait) empty() bool {
	return len(w.calls) == 0 && w.called == nil && w.delay == 0 && len(w.gates) == 0
}

// pass blocks until every condition has passed. It returns false if done is closed before.
func (w wait) pass(done <-chan struct{}) bool {
	for _, fn := range w.calls {
		fn()
	}
	if w.called != nil {
		select {
		case <-w.called:
		case <-done:
			return false
		}
	}
	if w.delay > 0 {
		timer := time.NewTimer(w.delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-done:
			return false
		}
	}
	for _, gate := range w.gates {
		select {
		case <-gate:
		case <-done:
			return false
		}
	}
	return true
}

// match passes the happening to OnFrame's function, counts it for every fault that it matches, and
// returns the combined effect of the faults that fire.
func (s *faultSet) match(h happening) verdict {
	var v verdict
	s.mu.Lock()
	if fn := s.onFrame; fn != nil && h.when != onAccept {
		s.mu.Unlock()
		fn(h.frame())
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	for _, i := range s.list {
		f := i.fault
		if i.removed || !f.matches(h) {
			continue
		}
		if f.chance != 0 && i.random.Float64() >= f.chance {
			continue
		}
		i.matched++
		times := f.times
		if times == 0 && f.nth > 0 {
			times = 1
		}
		if i.matched < f.nth || times > 0 && i.fired >= times {
			continue
		}
		if i.fired++; i.fired == 1 {
			close(i.hit)
		}
		v.close = v.close || f.when == onAccept
		for _, a := range f.actions {
			a.apply(&v, i)
		}
	}
	return v
}
