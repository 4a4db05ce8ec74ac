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
	"github.com/zklock/zklock/internal/node"
	"github.com/zklock/zklock/internal/queue"
	"github.com/zklock/zklock/internal/reply"
)

// Election is one candidate for the leadership of a path: a [Mutex] whose holder leads, so the same
// promises apply. It is safe for concurrent use, except that it takes part in one Run or Campaign
// at a time.
type Election struct {
	m  *Mutex
	mu *candidacy // behind a pointer, as a Session's state is
}

// candidacy is the part of an Election that changes.
type candidacy struct {
	sync.Mutex
	campaign *campaign // in progress
	hold     *Hold     // while lead runs
}

// campaign is one call of Campaign.
type campaign struct {
	cancel context.CancelCauseFunc
	ended  chan struct{} // closed when the call returns, after err is set
	err    error         // the result of the call
}

// NewElection returns a candidate for the leadership of path, and sends nothing. The rules of
// [NewMutex] apply. The candidate's name is its node's data, in UTF-8: "host:pid", or the data that
// [WithData] sets.
//
// All candidates of a path must be of one kind: by default the nodes are those that a Mutex and
// Curator's LeaderSelector create, and with [WithLatchNodes] those that LeaderLatch creates.
//
// Campaign, Leader and Observe return a final error if they find nodes of another recipe. Of two
// candidates of different kinds, the later one is rejected, so they never lead at the same time. To
// change the kind, end all candidates first: a LeaderLatch does not check the kind, and leads
// alongside.
func NewElection(s *Session, path string, opts ...ElectionOption) (*Election, error) {
	o := newLockOptions(opts)
	m, err := mutexOf(s, "new election", path, o.name, o, candidate{})
	if err != nil {
		return nil, err
	}
	if err := checkCandidate(o.data, o.name); err != nil {
		return nil, &Error{Op: "new election", Path: path, Err: badArgument{err}}
	}
	m.traced = KindElection
	return &Election{m: m, mu: new(candidacy)}, nil
}

// checkCandidate rejects a name that other clients could not read.
func checkCandidate(name []byte, marker string) error {
	switch {
	case len(name) == 0 && marker != queue.LatchName:
		return errors.New("WithData: the candidate's name is empty; leave the option out for host:pid")
	case !utf8.Valid(name):
		return fmt.Errorf("WithData: the candidate's name %q is not UTF-8", name[:min(len(name), node.MaxShown)])
	case bytes.Equal(name, revokeMessage):
		return fmt.Errorf("WithData: no candidate may be called %s, which asks a leader to give way", revokeMessage)
	}
	return nil
}

// WithLatchNodes makes the candidate create nodes of Curator's LeaderLatch. The candidate's name
// may then be empty.
func WithLatchNodes() ElectionOption {
	return lockOption(func(o *lockOptions) { o.name = queue.LatchName })
}

// String returns the path, with the type's name.
func (e *Election) String() string { return "Election(" + e.made().m.Path() + ")" }

func (e *Election) isMade() bool { return e != nil && e.m != nil }

func (e *Election) made() *Election { return usable(e, e.isMade(), errNoElection) }

// Run calls [Election.Campaign] again after each term, until ctx ends: also after a loss, after
// Resign, and after an error of lead. It ends early after a final error ([IsFinal]), such as an
// error that lead marks by [Final], or another lock's final error. It returns the error of the last
// Campaign, which is nil if lead returned nil when ctx ended. If a pause is interrupted, it returns
// the cause of ctx or ErrClosed.
//
// Between terms Run logs the error, and pauses so that another candidate can lead. The pauses grow
// from 20 ms to 5 s, and start over after a longer term.
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

// pause logs the result of a round that began then, and gives other candidates time to queue. It
// returns an error if ctx ends first, or the Session is closed.
func (e *Election) pause(ctx context.Context, backoff *link.Backoff, began time.Time, ended error) error {
	e.m.s.log.Info("zklock: campaigning again", "path", e.m.root.Path(), "err", ended)
	if time.Since(began) > 5*time.Second {
		*backoff = link.Backoff{}
	}
	fail := func(err error) error { return &Error{Op: "campaign", Path: e.m.root.Given(), Err: err} }
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
// it is elected. The context of lead ends when the leadership is lost, when ctx ends, and when
// [Election.Resign] is called. lead must return soon after, because the next leader waits for its
// return, except after a loss.
//
// lead is not called if its context has ended already. Campaign returns the error of lead, joined
// with an error of the release, as [Mutex.Do] does. After a loss it logs the error instead, and
// queues again at the tail, unless the error is marked by [Final]. It also queues again after a
// temporary error of its own. Each time it pauses first, as Run does.
//
// Without a term, Campaign returns [ErrResigned] (after Resign), the cause of ctx, or a final
// error. If Resign ends the context of lead, and lead returns the context's error, Campaign adds
// ErrResigned. On return the candidate's node is deleted or is being deleted ([ErrNotConfirmed]).
func (e *Election) Campaign(ctx context.Context, lead func(ctx context.Context, hold *Hold) error) (err error) {
	if !e.isMade() {
		return &Error{Op: "campaign", Err: errNoElection}
	}
	stand, c, err := e.beginCampaign(ctx, lead != nil)
	if err != nil {
		return &Error{Op: "campaign", Path: e.m.root.Given(), Err: err}
	}
	defer func() {
		e.mu.Lock()
		e.mu.campaign = nil
		e.mu.Unlock()
		c.err = err
		close(c.ended)
		var cause error // for a Trace, which cannot observe the end of a Campaign otherwise
		if err != nil {
			cause = &Error{Op: "campaign", Path: e.m.root.Given(), Err: err}
		}
		c.cancel(cause)
	}()
	err = e.m.reading(stand, "campaign", func(z *node.ZKSession) error {
		_, _, err := e.firstCandidate(stand, z, true)
		return err
	})
	if err != nil && len(e.m.s.trace.all) > 0 {
		_, failed := e.m.s.trace.beginTrace(stand, AcquireInfo{Kind: e.m.traced, Path: e.m.root.Given(), Name: e.m.opts.label})
		failed.acquired(stand, nil, AcquireEndInfo{Err: err})
	}
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

// beginCampaign registers the only campaign of this candidate.
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
		return nil, nil, badArgument{errors.New("this Election is in a Campaign already: create another with NewElection")}
	}
	c := &campaign{ended: make(chan struct{})}
	ctx, c.cancel = context.WithCancelCause(ctx)
	e.mu.campaign = c
	return ctx, c, nil
}

// campaignOnce queues and, when the candidate is elected, leads. It reports whether the campaign
// has ended. ctx ends with the campaign; caller is Campaign's own context, which Resign does not
// end.
func (e *Election) campaignOnce(ctx, caller context.Context, lead func(ctx context.Context, hold *Hold) error) (isOver bool, err error) {
	by := e.m.caller(ctx, "campaign", forever)
	by.owner = NewOwner("") // a candidate does not re-enter another candidate's leadership
	hold, err := e.m.enterAs(by)
	if err != nil {
		return ctx.Err() != nil || IsFinal(err), err
	}
	e.setHold(hold)
	defer e.setHold(nil) // also if lead panics
	lost, err := hold.runWork(ctx, &graceTime{ctx: caller}, lead)
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

// Hold returns the hold under which this candidate leads, or nil. It compares the clock with the
// lease, as [Hold.Err] does.
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

// Resign ends the Campaign of this Election, and waits until it has returned. A leader's context
// ends with [ErrResigned], lead returns, and the next candidate is elected. Run then queues again:
// to end Run, end its context. Without a Campaign, Resign does nothing.
//
// If ctx ends first, Resign returns its cause, and the resignation remains in effect. If ctx cannot
// end, Resign returns an error after a minute. In lead, call Resign with lead's context: it returns
// ErrResigned at once. With another context it would wait for itself. [ErrNotConfirmed] and
// [ErrLost] are errors of the release.
func (e *Election) Resign(ctx context.Context) error {
	if !e.isMade() {
		return &Error{Op: "resign", Err: errNoElection}
	}
	if ctx == nil {
		return &Error{Op: "resign", Path: e.m.root.Given(), Err: errNilContext}
	}
	e.mu.Lock()
	c, leads := e.mu.campaign, e.mu.hold
	e.mu.Unlock()
	if c == nil {
		return nil
	}
	c.cancel(ErrResigned)
	fail := func(err error) error { return &Error{Op: "resign", Path: e.m.root.Given(), Err: err} }
	var tooLong <-chan time.Time
	if ctx.Done() == nil {
		tooLong = time.After(mostPatience)
	}
	if leads != nil && ctx.Err() == nil && heldIn(ctx, holdKey{table: &e.m.s.locks, root: e.m.root.Path()}) == leads {
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

// Candidates returns the candidates, the leader first, as [Mutex.Participants] does.
func (e *Election) Candidates(ctx context.Context) ([]Participant, error) {
	if !e.isMade() {
		return nil, &Error{Op: "participants", Err: errNoElection}
	}
	return e.m.Participants(ctx)
}

// Leader returns the first candidate, which leads or is about to. Without candidates, leader.Node
// is empty. After [Session.Revoke], Data is the revocation message. With [WithLockDelay],
// DelayUntil is set until the candidate leads. Leader waits for a connection until ctx ends.
func (e *Election) Leader(ctx context.Context) (leader Participant, err error) {
	if !e.isMade() {
		return Participant{}, &Error{Op: "leader", Err: errNoElection}
	}
	err = e.m.reading(ctx, "leader", func(z *node.ZKSession) (err error) {
		for again := true; again; again = errors.Is(err, zk.ErrNoNode) { // the first node was deleted meanwhile
			leader, err = e.readLeader(ctx, z)
		}
		return err
	})
	return leader, err
}

// readLeader returns the first candidate, or zk.ErrNoNode if its node is deleted meanwhile.
func (e *Election) readLeader(ctx context.Context, z *node.ZKSession) (Participant, error) {
	node, _, err := e.firstCandidate(ctx, z, true)
	if err != nil || node == "" {
		return Participant{}, err
	}
	p, err := readParticipant(ctx, z, node)
	if err == nil {
		p.Holds = e.m.root.HoldsInFront(node)
		err = e.m.opts.describe(ctx, z, &e.m.root, &p)
	}
	return p, err
}

// firstCandidate returns the first node, absolute, and reports whether the root exists. It returns
// an error if a node of another recipe is before the first node or, with check, anywhere in the
// root.
func (e *Election) firstCandidate(ctx context.Context, z *node.ZKSession, check bool) (node string, there bool, err error) {
	root := &e.m.root
	l := z.Lists.List(root.Path())
	err = l.Wait(ctx, z.ZKSession)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return "", false, nil
	case err != nil:
		return "", false, err
	}
	name := queue.FrontOf(l.Names, root.Rule().Markers)
	self := name
	if check {
		self = ""
	}
	if err := otherRecipe(root, l.Names, self); err != nil {
		return "", true, err
	}
	if name != "" {
		node = root.Path() + "/" + name
	}
	return node, true, nil
}

// candidate is the recipe of an election.
type candidate struct{ plain }

// listed rejects a queue with nodes of another recipe. Of two candidates of different kinds, the
// one with the later node finds the other's node, so the two never lead at the same time. The error
// is final, unless a candidate of our kind is first: then the other kind's candidate is rejected,
// too.
func (candidate) listed(a *attempt) error {
	root, children := a.d.root, a.list.Names
	err := otherRecipe(root, children, nameOf(a.node))
	if err != nil && otherRecipe(root, children, queue.FrontOf(children, root.Rule().Markers)) == nil {
		return errors.Unwrap(err)
	}
	return err
}

// otherRecipe returns an error with a remedy if a child not behind self is of another recipe than
// the election; if self is "", any child. Nothing is guaranteed between different recipes.
func otherRecipe(root *lockRoot, children []string, self string) error {
	what, others := "Curator's LeaderLatch: give WithLatchNodes", []string{queue.LatchName}
	if root.Rule().Name == queue.LatchName {
		what, others = "a mutex, or an election without WithLatchNodes: leave that out", []string{queue.MutexName}
	}
	if c := queue.ForeignOf(root.Rule(), self, children, others); c != "" {
		return badArgument{fmt.Errorf("%s is of %s, or give the election a path of its own", shown(c), what)}
	}
	third := queue.ForeignOf(root.Rule(), self, children, []string{queue.ReadName, queue.WriteName, queue.LeaseName, "__lock__"})
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
