package zklock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/reply"
)

// Election is one candidate for the leadership of a path, and a view of who leads. It is a Mutex on that path: the candidate that
// holds it leads, and the others queue behind. So what is promised of a Mutex and its Hold applies to a leader, too. An Election may be
// used from many goroutines, but in one Run or Campaign at a time.
type Election struct {
	m  *Mutex
	mu *candidacy // behind a pointer, as a Session's state is
}

// candidacy is the part of an Election that changes.
type candidacy struct {
	sync.Mutex
	campaign *campaign // under way
	hold     *Hold     // while lead runs
}

// campaign is one call of Campaign.
type campaign struct {
	cancel context.CancelCauseFunc
	ended  chan struct{} // closed when the call returns; then the field below is set
	err    error         // that it returns
}

// NewElection returns a candidate for the leadership of path, to which the rules of NewMutex apply,
// and sends nothing. The candidate's name is the data of its node, in UTF-8: "host:pid", or the data
// that WithData sets.
//
// All candidates of a path must have nodes of one kind. By default those are the nodes of a Mutex and of Curator's LeaderSelector,
// which stand in one election. WithLatchNodes makes those of Curator's LeaderLatch. kazoo's Election stands in neither: it does not
// wait for nodes of other names.
//
// Campaign, Leader and Observe refuse a path on which they find nodes of another recipe, with a final error that names one. A candidate
// looks before its first node, and then in each list by which it may be elected. So of two candidates of different kinds, the one whose
// node is the later is refused, and its node is deleted: they never lead at a time, also if both start at once, or if one stands again after
// a loss. A leader is not disturbed by one of another kind that comes later, and neither are those behind it: they stand again until
// that has gone. To change the kind, end all candidates of the path before you start others. Other clients' candidates do not look, nor
// does a Mutex: a LeaderLatch that comes to the path of a leader without WithLatchNodes leads beside it.
func NewElection(s *Session, path string, opts ...ElectionOption) (*Election, error) {
	if !s.isConnected() {
		return nil, &Error{Op: "new election", Path: path, Err: errNoSession}
	}
	o := newLockOptions(opts)
	m, err := mutexOf(s, path, o.name, o, candidate{})
	if err == nil {
		err = checkCandidate(o.data, o.name)
	}
	if err != nil {
		return nil, &Error{Op: "new election", Path: path, Err: badArgument{err}}
	}
	m.traced = KindElection
	return &Election{m: &m, mu: new(candidacy)}, nil
}

// checkCandidate refuses a name that other clients would not read as one.
func checkCandidate(name []byte, node string) error {
	switch {
	case len(name) == 0 && node != queue.LatchName:
		return errors.New("WithData: the candidate's name is empty; leave the option out for host:pid")
	case !utf8.Valid(name):
		return fmt.Errorf("WithData: the candidate's name %q is not UTF-8", name[:min(len(name), maxShown)])
	case bytes.Equal(name, revokeMessage):
		return fmt.Errorf("WithData: no candidate may be called %s, which asks a leader to give way", revokeMessage)
	}
	return nil
}

// WithLatchNodes gives the candidate the nodes of Curator's LeaderLatch, latch-, and the candidate
// waits for such nodes alone. As in Curator, its name may be empty.
func WithLatchNodes() ElectionOption {
	return lockOption(func(o *lockOptions) { o.name = queue.LatchName })
}

// String returns the path, in one word.
func (e *Election) String() string { return "Election(" + e.made().m.Path() + ")" }

func (e *Election) isMade() bool { return e != nil && e.m != nil }

// made is for methods that return no error.
func (e *Election) made() *Election {
	if !e.isMade() {
		panic(fmt.Errorf("zklock: %w", errNoElection))
	}
	return e
}

// Run campaigns for as long as the process is to take part in the election. After each term it
// calls Campaign again, whether lead returned an error or nil, the leadership was lost, or Resign
// ended the term. Run ends when ctx ends, when lead returns an error marked by Final, and after any
// other error for which IsFinal is true, which can be the error of another lock that lead returned.
// It returns the error of the last Campaign, which is nil if lead returned nil when ctx ended; or, if
// it ended in a pause, the cause of ctx or ErrClosed.
//
// Before each further term Run logs how the last one ended, and pauses, so that another candidate
// can lead. The pauses grow from 20 ms to 5 s, and start again from 20 ms when a term, with its
// wait in the queue, has lasted for more than 5 s.
func (e *Election) Run(ctx context.Context, lead func(ctx context.Context, hold *Hold) error) error {
	for backoff := (link.Backoff{}); ; {
		began := time.Now()
		err := e.Campaign(ctx, lead)
		if IsFinal(err) || ctx.Err() != nil {
			return err
		}
		if err = e.pause(ctx, &backoff, began, err); err != nil {
			return err
		}
	}
}

// pause logs how a round ended that began then, and lets other candidates go first. It returns an
// error if ctx ends before, or the Session is closed.
func (e *Election) pause(ctx context.Context, backoff *link.Backoff, began time.Time, ended error) error {
	e.m.s.log.Info("zklock: standing for election again", "path", e.m.root.path, "err", ended)
	if time.Since(began) > 5*time.Second {
		*backoff = link.Backoff{}
	}
	fail := func(err error) error { return &Error{Op: "campaign", Path: e.m.root.given, Err: err} }
	for over := time.After(backoff.Next()); ; {
		_, changed, err := e.m.s.link.AttachedNow()
		if err != nil {
			return fail(err)
		}
		select {
		case <-over:
			return nil
		case <-changed:
		case <-ctx.Done():
			return fail(ctxError(ctx))
		}
	}
}

// Campaign takes part in the election until the candidate has led for one term, and calls lead when
// it is elected. Run repeats it. lead runs as the function of Mutex.Do does: its context ends when
// the leadership is lost, when ctx ends and with Resign, and lead must return soon after. The next
// leader is elected when lead has returned.
//
// lead is not called if its context has ended by the time of the election. When lead returns while
// it leads, Campaign gives the leadership up, and returns the error of lead, joined with an error
// of the release as in Do, which is ErrNotHeld if the hold was released before. After a loss
// Campaign logs the error of lead, and queues again at the tail, unless lead returned an error
// marked by Final. It also queues again after an error of its own that is not final. Before that it
// pauses as Run does.
//
// A candidate that does not lead gets ErrResigned after Resign; the cause of ctx; or an error for
// which IsFinal is true, for example if the path has nodes of another recipe. A leader gets the
// error of lead in these cases, too: nil if that was nil, and ErrResigned with it if it was the
// error of its context. When Campaign returns, the candidate's node is deleted, or is being deleted
// (ErrNotConfirmed).
func (e *Election) Campaign(ctx context.Context, lead func(ctx context.Context, hold *Hold) error) (err error) {
	if !e.isMade() {
		return &Error{Op: "campaign", Err: errNoElection}
	}
	stand, c, err := e.beginCampaign(ctx, lead != nil)
	if err != nil {
		return &Error{Op: "campaign", Path: e.m.root.given, Err: err}
	}
	defer func() {
		e.mu.Lock()
		e.mu.campaign = nil
		e.mu.Unlock()
		c.err = err
		close(c.ended)
		c.cancel(nil)
	}()
	err = e.m.reading(stand, "campaign", func(z *zkSession) error {
		_, _, err := e.firstCandidate(stand, z, true)
		return err
	})
	for backoff := (link.Backoff{}); err == nil; {
		began := time.Now()
		var isOver bool
		if isOver, err = e.campaignOnce(stand, ctx, lead); isOver {
			return err
		}
		err = e.pause(stand, &backoff, began, err)
	}
	return err
}

// begin notes the only campaign of this candidate.
func (e *Election) beginCampaign(ctx context.Context, canLead bool) (context.Context, *campaign, error) {
	switch {
	case ctx == nil:
		return nil, nil, errNilContext
	case !canLead:
		return nil, nil, badArgument{errors.New("nil function: give Campaign the leader's work")}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.campaign != nil {
		return nil, nil, badArgument{errors.New("this Election stands in a Campaign already: make another with NewElection")}
	}
	c := &campaign{ended: make(chan struct{})}
	ctx, c.cancel = context.WithCancelCause(ctx)
	e.mu.campaign = c
	return ctx, c, nil
}

// campaignOnce queues and, when the candidate is elected, leads. It says whether the campaign is over. ctx ends with the campaign;
// caller is the context that Campaign was given, which does not end with Resign.
func (e *Election) campaignOnce(ctx, caller context.Context, lead func(ctx context.Context, hold *Hold) error) (isOver bool, err error) {
	by := e.m.caller(ctx)
	by.owner = NewOwner("") // a candidate does not re-enter another candidate's leadership
	hold, err := e.m.enterAs(ctx, by, "campaign", forever, e.m.recipe)
	if err != nil {
		return ctx.Err() != nil || IsFinal(err), err
	}
	e.setHold(hold)
	defer e.setHold(nil) // also if lead panics
	lost, err := hold.runWork(ctx, caller, lead)
	if lost && ctx.Err() == nil && !errors.Is(hold.Err(), ErrClosed) && !isMarked(err) {
		return false, err
	}
	if errors.Is(err, context.Canceled) && errors.Is(context.Cause(ctx), ErrResigned) && !errors.Is(err, ErrResigned) {
		err = fmt.Errorf("%w: %w", ErrResigned, err)
	}
	return true, err
}

func (e *Election) setHold(h *Hold) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.hold = h
}

// Hold returns the hold under which this candidate leads now, nil if it does not lead. It answers from memory, and compares the clock with
// the lease first, as Hold.Err does. So after a pause it does not report a leadership that has gone to another.
func (e *Election) Hold() *Hold {
	e.made()
	e.mu.Lock()
	h := e.mu.hold
	e.mu.Unlock()
	if h == nil || h.Err() != nil {
		return nil
	}
	return h
}

// mostPatience is how long a Resign whose context never ends waits for lead.
const mostPatience = time.Minute

// Resign ends the Campaign of this Election, and waits until it has returned: a leader's context
// ends with ErrResigned, lead returns, and the next candidate is elected, while this process still
// runs and without a session timeout in between. If the Campaign is one of Run, Run then queues
// again at the tail: to end Run, end its context. Without a Campaign, Resign does nothing.
//
// If ctx ends before, Resign returns its cause. The resignation stands, and the next candidate waits for lead to return. If ctx never ends
// by itself, as context.Background, Resign waits for lead for a minute at most, and then returns an error. In lead, call it with lead's
// context, or another that carries the hold: then Resign returns ErrResigned at once, and lead has only to return. With any other it would
// wait for itself. ErrNotConfirmed and ErrLost are those of the release.
func (e *Election) Resign(ctx context.Context) error {
	if !e.isMade() {
		return &Error{Op: "resign", Err: errNoElection}
	}
	if ctx == nil {
		return &Error{Op: "resign", Path: e.m.root.given, Err: errNilContext}
	}
	e.mu.Lock()
	c, leads := e.mu.campaign, e.mu.hold
	e.mu.Unlock()
	if c == nil {
		return nil
	}
	c.cancel(ErrResigned)
	fail := func(err error) error { return &Error{Op: "resign", Path: e.m.root.given, Err: err} }
	var tooLong <-chan time.Time
	if ctx.Done() == nil {
		tooLong = time.After(mostPatience)
	}
	if leads != nil && ctx.Err() == nil && heldIn(ctx, holdKey{table: &e.m.s.locks, root: e.m.root.path}) == leads {
		return fail(fmt.Errorf("%w: this call's context carries the leader's hold; lead has only to return", ErrResigned))
	}
	select {
	case <-c.ended:
	case <-tooLong:
		return fail(fmt.Errorf("lead has not returned for %v: if this call is in lead, give it lead's context, or only return; "+
			"otherwise give Resign a context that ends", mostPatience))
	case <-ctx.Done():
		return fail(ctxError(ctx))
	}
	if reply.IsAny(c.err, ErrNotConfirmed, ErrLost) {
		return c.err
	}
	return nil
}

// Candidates returns the candidates, the leader first, as Participants does.
func (e *Election) Candidates(ctx context.Context) ([]Participant, error) {
	if !e.isMade() {
		return nil, &Error{Op: "participants", Err: errNoElection}
	}
	return e.m.Participants(ctx)
}

// Leader returns the candidate in front, as a server knows it: it leads, or is about to. If nobody
// stands for election, the Participant is the zero one, whose Node is empty. The Data of a leader
// that was asked to give way is that message (see Session.Revoke). With WithLockDelay, its
// DelayUntil is set while it waits for that: then it does not lead yet. While no server can be
// reached, Leader waits for one until ctx ends.
func (e *Election) Leader(ctx context.Context) (leader Participant, err error) {
	if !e.isMade() {
		return Participant{}, &Error{Op: "leader", Err: errNoElection}
	}
	err = e.m.reading(ctx, "leader", func(z *zkSession) error {
		leader, err = e.m.frontOf(ctx, z, func() (string, error) {
			node, _, err := e.firstCandidate(ctx, z, true)
			return node, err
		})
		return err
	})
	return leader, err
}

// firstCandidate returns the node in front, absolute, and whether the root is there. It returns an error if a node of another recipe is ahead of
// that; with check, if the root has one at all.
func (e *Election) firstCandidate(ctx context.Context, z *zkSession, check bool) (node string, there bool, err error) {
	root := &e.m.root
	l := z.lists.List(root.path)
	err = l.Wait(ctx, z.ZKSession)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return "", false, nil
	case err != nil:
		return "", false, err
	}
	name := queue.FrontOf(l.Names, root.rule.Markers)
	self := name
	if check {
		self = ""
	}
	if err := otherRecipe(root, l.Names, self); err != nil {
		return "", true, err
	}
	if name != "" {
		node = root.path + "/" + name
	}
	return node, true, nil
}

// candidate is the recipe of an election.
type candidate struct{ plain }

// listed rejects a queue with nodes of another recipe. Of two candidates of different kinds, the one
// with the later node finds the other's node, so the two never lead at the same time. The error is
// final, unless a candidate of our kind is first: then the other kind's candidate is rejected, too.
func (candidate) listed(a *attempt) error {
	root, children := a.d.root, a.list.Names
	err := otherRecipe(root, children, nameOf(a.node))
	if err != nil && otherRecipe(root, children, queue.FrontOf(children, root.rule.Markers)) == nil {
		return errors.Unwrap(err)
	}
	return err
}

// otherRecipe says what to do if a child that is not behind self, a child too, is not of the election's recipe; if self is "", any child:
// between the recipes nothing is promised.
func otherRecipe(root *lockRoot, children []string, self string) error {
	what, others := "Curator's LeaderLatch: give WithLatchNodes", []string{queue.LatchName}
	if root.rule.Name == queue.LatchName {
		what, others = "a mutex, or an election without WithLatchNodes: leave that out", []string{queue.MutexName}
	}
	if c := queue.ForeignOf(root.rule, self, children, others); c != "" {
		return badArgument{fmt.Errorf("%s is of %s, or give the election a path of its own", shown(c), what)}
	}
	third := queue.ForeignOf(root.rule, self, children, []string{queue.ReadName, queue.WriteName, queue.LeaseName, "__lock__"})
	for _, c := range children {
		if self == "" && (c == "locks" || c == "leases") {
			third = c
		}
	}
	if third != "" {
		return badArgument{fmt.Errorf("%s is of a read/write lock, a semaphore or kazoo: give the election a path of its own", shown(third))}
	}
	return nil
}
