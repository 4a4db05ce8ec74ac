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

// Injection is a [Fault] at work.
type Injection struct {
	fault    Fault
	err      error // why it was refused; then it is in no set
	set      *faultSet
	released chan struct{} // closed by Release
	hit      chan struct{} // closed when it first fires

	// guarded by set.mu
	random  *rand.Rand // for Chance
	matched int
	fired   int
	removed bool
}

// String spells the fault.
func (i *Injection) String() string { return i.fault.String() }

// Fired returns how often the fault has done what it is there for.
func (i *Injection) Fired() int {
	i.set.mu.Lock()
	defer i.set.mu.Unlock()
	return i.fired
}

// Err returns why [Server.Inject] has refused the fault, or nil.
func (i *Injection) Err() error { return i.err }

// Wait returns when the fault has fired for the first time, or with the context's cause when that ends first. For a fault that
// was refused it returns [Injection.Err].
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

// Release lets go of what the fault holds, and from then on Hold does nothing.
func (i *Injection) Release() {
	i.set.mu.Lock()
	defer i.set.mu.Unlock()
	select {
	case <-i.released:
	default:
		close(i.released)
	}
}

// Remove ends the fault and releases what it holds. How often it fired still counts at the end of the test.
func (i *Injection) Remove() {
	i.set.mu.Lock()
	i.removed = true
	if i.fired > 0 || i.fault.optional {
		// It has fired or is optional, so the end of the test does not ask for it: match nothing with it from now on.
		i.set.list = slices.DeleteFunc(i.set.list, func(o *Injection) bool { return o == i })
	}
	i.set.mu.Unlock()
	i.Release()
}

// faultSet is the faults of one server, ensemble or proxy.
type faultSet struct {
	t    TB         // nil outside tests
	mu   sync.Mutex // a leaf: nothing is called and nothing waits while it is held
	list []*Injection

	onFrame func(Frame)
}

// Inject sets a fault to work. It refuses one that can never mean anything, such as Before(Create).DropReply(): that fails the
// test if the server or proxy was started for one ([Start], [StartEnsemble], [StartProxy]); if not, the fault never fires,
// and [Injection.Err] says why. A fault that has not fired by the end of its test fails that test, unless it is Optional.
func (s *faultSet) Inject(f Fault) *Injection {
	if f.chance != 0 && f.seed == 0 {
		f.seed = rand.Uint64()
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

// server is what can be started for a test.
type server interface {
	Close()
	faults() *faultSet
}

func (s *faultSet) faults() *faultSet { return s }

// started ties what a New function has returned to a test: faults that are refused or never fire fail the test. Its end closes
// the server, and logs the server's state if the test has failed.
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

// active says whether anything can match at all. If not, the paths of a request need not be found.
func (s *faultSet) active() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.list) > 0 || s.onFrame != nil
}

// unfired returns the faults that never fired and were not optional.
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

// verdict is what all faults that fire at one happening want together.
type verdict struct {
	close      bool
	dropReply  bool
	drop       bool
	expire     bool
	duplicates int
	fail       wire.Code
	freeze     time.Duration
	wait       wait
}

// wait is what has to pass before something goes on: calls first, then time, then releases.
type wait struct {
	calls  []func()
	called <-chan struct{} // instead of calls: they run elsewhere, and this is closed when they are through
	delay  time.Duration
	gates  []<-chan struct{}
}

func (w wait) empty() bool {
	return len(w.calls) == 0 && w.called == nil && w.delay == 0 && len(w.gates) == 0
}

// pass blocks until all has passed, or until done is closed, and then returns false.
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

// match passes the happening to OnFrame's function, counts it for every fault it concerns, and returns
// what those that fire want.
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
			switch a.kind {
			case actClose:
				v.close = true
			case actDropReply:
				v.dropReply = true
			case actDrop:
				v.drop = true
			case actDuplicate:
				v.duplicates++
			case actDelay:
				v.wait.delay += a.d
			case actHold:
				v.wait.gates = append(v.wait.gates, i.released)
			case actFail:
				v.fail = wire.Code(a.code)
			case actExpire:
				v.expire = true
			case actCall:
				v.wait.calls = append(v.wait.calls, a.fn)
			case actFreeze:
				v.freeze = max(v.freeze, a.d)
			}
		}
	}
	return v
}
