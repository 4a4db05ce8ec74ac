package command

// The lock of a run, and the participants in its queue: the differences between the recipes, for
// run and ls.

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/queue"
)

// recipeFlags select the lock of a run: a mutex, if none is given.
type recipeFlags struct {
	shared    bool
	semaphore int64  // the limit; 0: not given
	limit     string // the node that shares it; "": none
	permits   int64
	elect     bool
}

func (f *recipeFlags) check(given func(string) bool) error {
	var kinds []string
	for _, name := range []string{"shared", "semaphore", "elect"} {
		if given(name) {
			kinds = append(kinds, "--"+name)
		}
	}
	switch {
	case len(kinds) > 1:
		return exitf(exitUsage, "%s contradict each other: give one of them", strings.Join(kinds, " and "))
	case given("semaphore-limit") && !given("semaphore"):
		return exitf(exitUsage, "--semaphore-limit is for --semaphore")
	case given("semaphore-limit") && f.semaphore > maxSharedLimit:
		return exitf(exitUsage, "--semaphore %d with --semaphore-limit: give 1 to %d", f.semaphore, maxSharedLimit)
	case given("semaphore") && (f.semaphore < 1 || f.semaphore > math.MaxInt32):
		return exitf(exitUsage, "--semaphore %d: give the number of permits that there are, 1 to %d", f.semaphore, math.MaxInt32)
	case given("permits") && !given("semaphore"):
		return exitf(exitUsage, "--permits is for --semaphore")
	case f.permits < 1, given("semaphore") && f.permits > f.semaphore:
		return exitf(exitUsage, "--permits %d of --semaphore %d: give 1 to %d", f.permits, f.semaphore, f.semaphore)
	}
	return nil
}

// maxSharedLimit is the largest limit that a semaphore takes from a node.
const maxSharedLimit = 1 << 24

// checkLimit rejects a node that cannot have the limit of the semaphore on path.
func checkLimit(path, node string) error {
	if err := zklock.ValidatePath(node); err != nil {
		return exitf(exitUsage, "--semaphore-limit: %w", err)
	}
	below := func(node, above string) bool { return strings.HasPrefix(node+"/", above+"/") }
	if below(node, path+"/locks") || below(node, path+"/leases") || below(path, node) {
		return exitf(exitUsage, "--semaphore-limit %s is a node of the semaphore or above it: give another, such as %s/limit", node, path)
	}
	return nil
}

type recipe struct {
	zklock.Lock
	queue  func(ctx context.Context) (lockQueue, error)
	limit  func(ctx context.Context) (int, error) // of a semaphore, as it is now
	queued string                                 // the parent of the waiters' nodes, absolute
	held   string                                 // the parent of the holders' nodes
}

// recipe makes the lock of a run. opts are the options that every recipe takes.
func (o *runOptions) recipe(s *zklock.Session, opts []zklock.LockOption) (r recipe, err error) {
	root := o.at(o.path)
	r.queued, r.held = root, root
	participants := func(read func(context.Context) ([]zklock.Participant, error)) func(context.Context) (lockQueue, error) {
		return func(ctx context.Context) (lockQueue, error) {
			ps, err := read(ctx)
			return queueOf(ps), err
		}
	}
	switch {
	case o.shared:
		var m *zklock.RWMutex
		if m, err = zklock.NewRWMutex(s, o.path, optionsOf[zklock.RWMutexOption](opts)...); err == nil {
			r.Lock, r.queue = m.ReadLock(), participants(m.ReadLock().Participants)
		}
	case o.semaphore > 0:
		var sem *zklock.Semaphore
		opts := optionsOf[zklock.SemaphoreOption](opts)
		if o.limit != "" {
			opts = append(opts, zklock.WithSharedLimit(o.limit))
		}
		if sem, err = zklock.NewSemaphore(s, o.path, int(o.semaphore), opts...); err == nil {
			r.Lock, r.queued, r.held = sem.Permits(int(o.permits)), root+"/locks", root+"/leases"
			r.limit = sem.Limit
			r.queue = func(ctx context.Context) (q lockQueue, err error) {
				q.isSemaphore = true
				q.holders, q.waiters, err = sem.Participants(ctx)
				return q, err
			}
		}
	default: // an election too: its nodes are a mutex's
		var m *zklock.Mutex
		opts := optionsOf[zklock.MutexOption](opts)
		if o.once != "" {
			opts = append(opts, zklock.WithKeptRuns(int(o.onceKeep)))
		}
		if o.atLeast > 0 {
			opts = append(opts, zklock.WithMinHold(o.atLeast))
		}
		if o.lockDelay > 0 {
			opts = append(opts, zklock.WithLockDelay(o.lockDelay))
		}
		if m, err = zklock.NewMutex(s, o.path, opts...); err == nil {
			r.Lock, r.queue = m, participants(m.Participants)
		}
	}
	return r, err
}

// optionsOf returns options that every recipe takes as options of one recipe.
func optionsOf[O any](opts []zklock.LockOption) []O {
	of := make([]O, len(opts))
	for i, opt := range opts {
		of[i] = any(opt).(O)
	}
	return of
}

// checkPath rejects a path that another recipe uses, as far as its nodes show that, because the two
// would not see each other. Nodes that cannot be read are ignored.
func (o *runOptions) checkPath(ctx context.Context, s *zklock.Session) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.connectTimeout, errNoServer{o.connectTimeout})
	defer cancel()
	children := childrenOf(ctx, s, o.at(o.path))
	isSemaphore := mayBeSemaphore(children) && areLeases(childrenOf(ctx, s, o.at(o.path+"/leases")))
	if what := o.otherRecipe(children, isSemaphore); what != "" {
		return exitf(exitUsage, "%s: %s", o.path, what)
	}
	return nil
}

func childrenOf(ctx context.Context, s *zklock.Session, node string) []string {
	names, _ := ask(ctx, s, func(c *zk.Conn) ([]string, error) {
		names, _, err := c.Children(node)
		return names, err
	})
	return names
}

// otherRecipe returns advice if the children of the path belong to another recipe than the flags
// select, otherwise "".
func (f *recipeFlags) otherRecipe(children []string, isSemaphore bool) string {
	if isSemaphore && f.semaphore == 0 {
		return "this is the path of a semaphore: give --semaphore, or another PATH; or delete PATH/locks and PATH/leases, if no client uses it any more"
	}
	for _, name := range children {
		mode := modeOf(name)
		_, isQueued := queue.Parse(name, append([]string{queue.LatchName}, queue.Markers...))
		_, isNoCandidate := queue.Parse(name, []string{"__lock__", queue.WriteName}) // kazoo's mutex, a writer
		switch {
		case !isQueued:
		case f.semaphore > 0:
			return fmt.Sprintf("%s belongs to another kind of lock: give the semaphore another PATH", name)
		case mode == modeLatch:
			return fmt.Sprintf("%s belongs to Curator's LeaderLatch: give another PATH", name)
		case f.elect && (mode == modeShared || isNoCandidate):
			return fmt.Sprintf("%s belongs to another kind of lock: give the election another PATH", name)
		}
	}
	return ""
}

// mayBeSemaphore reports whether a node with these children may be a semaphore. It is one if its
// leases are: areLeases.
func mayBeSemaphore(children []string) bool {
	return slices.Contains(children, "locks") && slices.Contains(children, "leases")
}

// areLeases reports whether a node has no children but leases: other folders may be called leases,
// too.
func areLeases(children []string) bool {
	return !slices.ContainsFunc(children, func(name string) bool { return modeOf(name) != modePermit })
}

// How a node holds.
const (
	modeExclusive = "exclusive" // alone: a mutex, a writer, a candidate
	modeShared    = "shared"    // a reader
	modePermit    = "permit"    // of a semaphore
	modeLatch     = "latch"     // a candidate of Curator's LeaderLatch: alone among latch nodes
)

// modeOf returns the mode by the name of a node. It does not apply to a semaphore's queue, where
// the names are a mutex's.
func modeOf(name string) string {
	for _, m := range []struct{ marker, mode string }{
		{queue.ReadName, modeShared}, {queue.LeaseName, modePermit}, {queue.LatchName, modeLatch},
	} {
		if _, is := queue.Parse(name, []string{m.marker}); is {
			return m.mode
		}
	}
	return modeExclusive
}

// lockQueue has the holders and the waiters of a lock, each in their order.
type lockQueue struct {
	holders, waiters []zklock.Participant
	isSemaphore      bool
	limit            *int   // of a semaphore, if a node has it; otherwise nil
	noLimit          string // why the limit in a node is not known; otherwise ""
}

func (q lockQueue) all() []zklock.Participant { return slices.Concat(q.holders, q.waiters) }

// overLimit returns how many permits are in use beyond the limit: it was lowered, or some clients
// do not follow it.
func (q lockQueue) overLimit() int {
	if q.limit == nil {
		return 0
	}
	return max(len(q.holders)-*q.limit, 0)
}

func queueOf(ps []zklock.Participant) (q lockQueue) {
	for _, p := range ps {
		if p.Holds {
			q.holders = append(q.holders, p)
		} else {
			q.waiters = append(q.waiters, p)
		}
	}
	return q
}

func nameOf(node string) string { return node[strings.LastIndexByte(node, '/')+1:] }
