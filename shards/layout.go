package shards

// The znodes of a group, and the requests that read and write them.
//
//	PATH                  {"format":1,"shards":N}
//	PATH/members          an election: each member is a candidate, and the leader plans
//	PATH/members/new-ID   one for each member: it is new, ready-ID, or left-ID from when it begins
//	                      to leave until its last function has returned
//	PATH/plan             {"format":1,"members":[…],"shards":[…]}, or empty as long as there is no plan
//	PATH/shards/NNNN      an ordinary mutex for each shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock"
)

const (
	format    = 1           // of PATH and of the plan
	maxPlan   = 256 << 10   // bytes, of the 1 MiB that the servers read by default
	lookAgain = time.Minute // a change is noticed after this at the latest, should a server lose its event

	// Of the node that shows the state of a member.
	newPrefix   = "new-"
	readyPrefix = "ready-" // the member has been present for probation
	leftPrefix  = "left-"

	pauseMin = 100 * time.Millisecond
	pauseMax = 5 * time.Second // between requests that fail
	readers  = 64              // how many nodes are read at a time
)

// settings is the data of PATH, and zero if that is empty.
type settings struct {
	Format int `json:"format"`
	Shards int `json:"shards"`
}

type candidate struct {
	Member
	Shards  int   `json:"shards"` // the number that it was given
	size    int   // of the data
	session int64 // that has created the node
	isReady bool
}

// layout is where a group's znodes are.
type layout struct {
	s     *zklock.Session
	path  string // as given, below the chroot
	root  string // absolute
	acl   []zk.ACL
	calls *sync.WaitGroup // requests that their callers did not wait for
}

func (l layout) members() string        { return l.root + "/members" }
func (l layout) plan() string           { return l.root + "/plan" }
func (l layout) shard(shard int) string { return fmt.Sprintf("%s/shards/%04d", l.path, shard) } // as NewMutex wants it

// stateOf returns the state and the id of a member if the child of PATH/members shows them.
func stateOf(child string) (state, id string) {
	for _, state := range []string{newPrefix, readyPrefix, leftPrefix} {
		if id, is := strings.CutPrefix(child, state); is {
			return state, id
		}
	}
	return "", ""
}

// errorf wraps the error of a request, so that zklock.IsFinal recognizes a server's rejection.
func (l layout) errorf(op string, err error) error {
	if ours := (*zklock.Error)(nil); err == nil || errors.As(err, &ours) {
		return err
	}
	if l.s.Stats().State == zklock.StateClosed {
		err = zklock.ErrClosed // go-zookeeper reports a lost connection
	}
	return &zklock.Error{Op: "shards: " + op, Path: l.path, Err: err}
}

// isRejected reports whether an administrator can repair the znode that the error is about.
func isRejected(err error) bool {
	return zklock.IsFinal(err) && !errors.Is(err, zklock.ErrClosed) && !errors.Is(err, ErrShardCount)
}

// await returns what f returns, and the cause of ctx if that ends first: go-zookeeper's calls take
// no context.
func await[T any](ctx context.Context, l layout, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	l.calls.Go(func() {
		value, err := f()
		done <- result{value, err}
	})
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// backoff is a pause that doubles from pauseMin on; 0 at first.
type backoff time.Duration

func (b *backoff) next(most time.Duration) time.Duration {
	*b = backoff(min(max(2*time.Duration(*b), pauseMin), most))
	return time.Duration(*b)
}

func (b *backoff) wait(ctx context.Context) { b.waitFor(ctx, nil) }

// waitFor ends early if the state of the Session changes.
func (b *backoff) waitFor(ctx context.Context, changes <-chan zklock.Change) {
	select {
	case <-time.After(b.next(pauseMax)):
	case <-changes:
	case <-ctx.Done():
	}
}

// persist calls f until it succeeds, ctx ends or an error is final.
func persist[T any](ctx context.Context, l layout, f func() (T, error)) (T, error) {
	for pause := backoff(0); ; {
		value, err := await(ctx, l, f)
		if err == nil || ctx.Err() != nil || zklock.IsFinal(err) {
			return value, err
		}
		pause.wait(ctx)
	}
}

// ensure creates the group's znodes for n shards if they are missing, and returns ErrShardCount if
// they are there for another number.
func (l layout) ensure(n int) error {
	for range 10 { // others may create them at the same time
		set, version, err := l.settings()
		switch {
		case errors.Is(err, zk.ErrNoNode):
			err = l.create(n)
		case err != nil:
		case set.Shards == 0:
			err = l.adopt(n, version)
		case set.Shards != n:
			err = fmt.Errorf("%w: the group has %d shards, and this member was given %d: give it %d, or end all members and call SetShards",
				ErrShardCount, set.Shards, n, set.Shards)
		default:
			return nil
		}
		if err != nil && !errors.Is(err, zk.ErrNodeExists) && !errors.Is(err, zk.ErrBadVersion) {
			return l.errorf("join the group", err)
		}
	}
	return l.errorf("join the group", errors.New("other clients create and delete it all the time"))
}

// settings returns the data of PATH, and its version.
func (l layout) settings() (set settings, version int32, err error) {
	if _, err := l.s.Conn().Sync(l.root); err != nil { // so that the server has all that was written before
		return set, 0, err
	}
	data, stat, err := l.s.Conn().Get(l.root)
	if err != nil {
		return set, 0, err
	}
	if len(data) == 0 {
		return set, stat.Version, nil
	}
	err = json.Unmarshal(data, &set)
	switch {
	case set.Format > format: // whatever else is there
		err = fmt.Errorf("%w: the group has format %d, and this program supports %d: update the program", errLayout, set.Format, format)
	case err != nil, set.Format < 1, set.Shards < 1:
		err = fmt.Errorf("%w: the node's data %.40q does not belong to a group: give the path of a group, or a new one a path of its own", errLayout, data)
	}
	return set, stat.Version, err
}

// parts are the requests that create the nodes below PATH.
func (l layout) parts(except ...string) (ops []any) {
	for _, name := range []string{"members", "plan", "shards"} {
		if !slices.Contains(except, name) {
			ops = append(ops, &zk.CreateRequest{Path: l.root + "/" + name, Acl: l.acl})
		}
	}
	return ops
}

// create creates PATH with all that is below it in one transaction, and before that the nodes above
// it.
func (l layout) create(n int) error {
	conn := l.s.Conn()
	for i := 1; i < len(l.path); i++ {
		if l.path[i] != '/' {
			continue
		}
		isThere, _, err := conn.Exists(l.s.Chroot() + l.path[:i])
		if err == nil && !isThere {
			_, err = conn.Create(l.s.Chroot()+l.path[:i], nil, 0, l.acl)
		}
		if err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return err
		}
	}
	data, _ := json.Marshal(settings{format, n})
	_, err := conn.Multi(append([]any{&zk.CreateRequest{Path: l.root, Data: data, Acl: l.acl}}, l.parts()...)...)
	return err
}

// adopt makes a group of a node that an operator has created empty. It rejects a node with children
// of another recipe.
func (l layout) adopt(n int, version int32) error {
	children, _, err := l.s.Conn().Children(l.root)
	if err != nil {
		return err
	}
	for _, c := range children {
		if c != "members" && c != "plan" && c != "shards" {
			return fmt.Errorf("%w: the path has a child %q, which is not of a group: give the group a path of its own", errLayout, c)
		}
	}
	data, _ := json.Marshal(settings{format, n})
	_, err = l.s.Conn().Multi(append([]any{&zk.SetDataRequest{Path: l.root, Data: data, Version: version}}, l.parts(children...)...)...)
	return err
}

func (l layout) repair() error {
	for _, op := range l.parts() {
		if _, err := l.s.Conn().Create(op.(*zk.CreateRequest).Path, nil, 0, l.acl); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return l.errorf("create the group", err)
		}
	}
	return nil
}

// setShards changes the number of shards in one transaction, which fails if a member is present. It
// returns the previous number.
func (l layout) setShards(n int) (was int, err error) {
	fail := func(err error) (int, error) { return 0, l.errorf("set the number of shards", err) }
	set, version, err := l.settings()
	switch {
	case errors.Is(err, zk.ErrNoNode), err == nil && set.Shards == 0:
		return 0, l.ensure(n)
	case err != nil:
		return fail(err)
	}
	if err := l.repair(); err != nil { // a part of an idle group may have been pruned
		return 0, err
	}
	data, _ := json.Marshal(settings{format, n})
	_, err = l.s.Conn().Multi(&zk.DeleteRequest{Path: l.members(), Version: -1}, &zk.CreateRequest{Path: l.members(), Acl: l.acl},
		&zk.SetDataRequest{Path: l.root, Data: data, Version: version}, &zk.SetDataRequest{Path: l.plan(), Version: -1})
	if errors.Is(err, zk.ErrNotEmpty) {
		err = fmt.Errorf("%w: end them first", ErrMembers)
	}
	if err != nil {
		return fail(err)
	}
	return set.Shards, nil
}

// parsePlan decodes the data of PATH/plan, for n shards, or any number if n is 0. No data means
// that there is no plan yet.
func parsePlan(data []byte, n int) (p plan, err error) {
	if len(data) == 0 {
		return plan{}, nil
	}
	err = json.Unmarshal(data, &p)
	isBad := func(i int) bool { return i < nobody || i >= len(p.Members) }
	switch {
	case p.Format > format: // whatever else is there
		return plan{}, fmt.Errorf("%w: it has format %d, and this program supports %d: update the program", errPlan, p.Format, format)
	case err != nil, p.Format < 1, p.Crashes < 0, slices.ContainsFunc(p.Shards, isBad):
		err = fmt.Errorf("%w: %.40q…", errPlan, data)
	case n > 0 && len(p.Shards) != n:
		err = fmt.Errorf("%w: it has %d shards, and the group has %d", errPlan, len(p.Shards), n)
	default:
		return p, nil
	}
	return plan{}, fmt.Errorf("%w: set the data of PATH/plan to that of an earlier plan, or to none for a new plan", err)
}

// plans returns an iterator over the plans, as parsePlan decodes them for n shards: the current one
// and then each next one, or errors. A plan that cannot be decoded is such an error. It waits while
// no server can be reached, and ends with the cause of ctx. read is planW, or begins with it. tend
// is called before each wait, which is no longer than it returns.
func (l layout) plans(ctx context.Context, n int, read func() (reading, error), tend func() time.Duration) iter.Seq2[Assignment, error] {
	return func(yield func(Assignment, error) bool) {
		sub, cancel := context.WithCancel(ctx)
		defer cancel()
		pause, known, changes := backoff(0), reading{zxid: -1}, l.s.Changes(sub)
		for {
			r, err := await(ctx, l, read)
			switch {
			case ctx.Err() != nil:
				yield(Assignment{}, context.Cause(ctx))
				return
			case err != nil:
				if !yield(Assignment{}, l.errorf("read the plan", err)) {
					return
				}
				pause.waitFor(ctx, changes)
				continue
			case r.zxid != known.zxid || r.session != known.session:
				if !yield(l.assignment(r, n)) {
					return
				}
			}
			known, pause = r, 0
			l.untilChanged(ctx, r, tend)
		}
	}
}

// assignment decodes the plan for n shards.
func (l layout) assignment(r reading, n int) (Assignment, error) {
	p, err := parsePlan(r.data, n)
	if err != nil {
		err = l.errorf("read the plan", err)
	}
	return Assignment{p.Members, r.version, p, r.session}, err
}

// reading is the result of one read of the plan's node.
type reading struct {
	data    []byte
	version int32
	zxid    int64 // of the last write; 0 if there is no node
	session int64 // of a member: the ZooKeeper session in which it has read PATH before
	events  <-chan zk.Event
}

func (l layout) planW() (r reading, err error) {
	var stat *zk.Stat
	if r.data, stat, r.events, err = l.s.Conn().GetW(l.plan()); errors.Is(err, zk.ErrNoNode) {
		var isThere bool
		switch isThere, _, r.events, err = l.s.Conn().ExistsW(l.plan()); {
		case err == nil && isThere: // it was created in between
			return l.planW()
		case err == nil:
			return r, nil
		}
	}
	if err == nil {
		r.version, r.zxid = stat.Version, stat.Mzxid
	}
	return r, err
}

// untilChanged waits for an event, for the end of ctx, or until a look each minute finds that the
// plan was written.
func (l layout) untilChanged(ctx context.Context, r reading, tend func() time.Duration) {
	for {
		select {
		case <-r.events: // also when the ZooKeeper session has ended
			return
		case <-ctx.Done():
			return
		case <-time.After(tend()):
		}
		zxid, err := await(ctx, l, func() (int64, error) {
			_, stat, err := l.s.Conn().Exists(l.plan())
			if err != nil {
				return 0, err
			}
			return stat.Mzxid, nil
		})
		if err != nil || zxid != r.zxid {
			return
		}
	}
}

// candidate reads the node of a member. Any other node is returned as a candidate without shards.
func (l layout) candidate(conn *zk.Conn, node string) (c candidate, err error) {
	data, stat, err := conn.Get(l.members() + "/" + node)
	if err != nil {
		return c, err
	}
	if json.Unmarshal(data, &c) != nil {
		c = candidate{}
	}
	c.size, c.session = len(data), stat.EphemeralOwner
	return c, nil
}

// others reports whether a child of PATH/members is a candidate, which has not begun to leave, and
// whether the member's own node shows that it leaves.
func (l layout) others(id string) (others, left bool, err error) {
	children, _, err := l.s.Conn().Children(l.members())
	others = slices.ContainsFunc(children, func(c string) bool { state, _ := stateOf(c); return state == "" })
	return others, slices.Contains(children, leftPrefix+id), err
}

// isPresent reports whether the member is present and has not begun to leave.
func (l layout) isPresent(id string) (bool, error) {
	children, _, err := l.s.Conn().Children(l.members())
	return slices.Contains(children, newPrefix+id) || slices.Contains(children, readyPrefix+id), err
}

// children lists the node's children. A watch that has not fired yet is used again, because
// go-zookeeper would keep both.
func (l layout) children(conn *zk.Conn, node string, watch *<-chan zk.Event) (children []string, err error) {
	if *watch != nil {
		children, _, err = conn.Children(node)
		return children, err
	}
	children, _, events, err := conn.ChildrenW(node)
	if err == nil {
		*watch = events
	}
	return children, err
}

// behind reports whether another client is in the queue of the shard that we hold, and watches the
// queue.
func (l layout) behind(hold *zklock.Hold, watch *<-chan zk.Event) (bool, error) {
	root, node := path.Split(hold.Node())
	children, err := l.children(l.s.Conn(), strings.TrimSuffix(root, "/"), watch)
	return slices.ContainsFunc(children, func(c string) bool { return c != node }), err
}

// isQueued reports whether the ZooKeeper session has a node in the queue of the shard.
func (l layout) isQueued(conn *zk.Conn, shard int, session int64) (bool, error) {
	root := l.s.Chroot() + l.shard(shard)
	children, _, err := conn.Children(root)
	if errors.Is(err, zk.ErrNoNode) {
		return false, nil
	}
	for _, c := range children {
		is, stat, err := conn.Exists(root + "/" + c)
		if err != nil || is && stat.EphemeralOwner == session {
			return true, err
		}
	}
	return false, err
}
