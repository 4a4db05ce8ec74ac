package conformance

// A process of ours, or of go-zookeeper's lock, in a queue whose sessions and processes are killed.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zklock/zklock"
)

const (
	mixedContenders = 2
	mixedLimit      = 3
	mixedSession    = 6 * time.Second
	mixedPatience   = 20 * time.Second
	mixedNames      = 500
	mixedWorker     = "ZKLOCK_MIXED_WORKER" // which lock this process takes part with: ADDRESS DIR RECIPE zklock or go-zookeeper
)

// errBeside reports that two clients are in that exclude each other.
var errBeside = errors.New("BESIDE")

// errLostNode reports that the lock node is deleted: its session was killed.
var errLostNode = errors.New("lost")

// workMixed takes part until the node over exists.
func workMixed(args string) int {
	fields := strings.Fields(args)
	addr, dir, recipe, who := fields[0], fields[1], fields[2], fields[3]
	var all sync.WaitGroup
	for range mixedContenders {
		all.Go(func() {
			for {
				contend := contendZklock
				if who == "go-zookeeper" {
					contend = contendGoZookeeper
				}
				err := contend(addr, dir, recipe)
				if errors.Is(err, errBeside) {
					fmt.Println(err)
					os.Exit(3)
				}
				if err == nil {
					return
				}
				fmt.Println("again:", err)
			}
		})
	}
	all.Wait()
	return 0
}

// mixedIn is a client that is in. name is the lock's suffix.
type mixedIn struct {
	c                    *zk.Conn
	dir, who, name, node string
}

func (in mixedIn) check() *zk.CheckVersionRequest {
	return &zk.CheckVersionRequest{Path: in.node, Version: -1}
}

// clear deletes the mark of a round whose connection was lost while its session lives: otherwise
// the next client that is in would take the mark for another client. It ends with the session.
func (in mixedIn) clear(mark string, failed error) {
	for session := in.c.SessionID(); errors.Is(failed, zk.ErrConnectionClosed) && in.c.SessionID() == session; rest() {
		is, stat, err := in.c.Exists(mark)
		if err == nil && (!is || stat.EphemeralOwner != session) {
			return
		}
		if err == nil && in.c.Delete(mark, -1) == nil {
			return
		}
	}
}

// enter creates a mark, unless the lock node is deleted.
func (in mixedIn) enter(mark string, flags int32) (string, error) {
	done, err := in.c.Multi(in.check(), &zk.CreateRequest{Path: in.dir + "/busy/" + mark, Flags: flags, Acl: zk.WorldACL(zk.PermAll)})
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return "", fmt.Errorf("%w: %s", errLostNode, in.node)
	case errors.Is(err, zk.ErrNodeExists):
		return "", fmt.Errorf("%w: %s is in, and so is another", errBeside, in.node)
	case err != nil:
		return "", err
	}
	return done[1].String, nil
}

func (in mixedIn) leave(mark, kind string, more ...any) error {
	entry := &zk.CreateRequest{Path: fmt.Sprintf("%s/log/%s-%s-%s-", in.dir, in.who, kind, in.node[len(in.node)-10:]), Flags: zk.FlagSequence, Acl: zk.WorldACL(zk.PermAll)}
	_, err := in.c.Multi(append([]any{in.check(), &zk.DeleteRequest{Path: mark, Version: -1}, entry}, more...)...)
	if errors.Is(err, zk.ErrNoNode) {
		return fmt.Errorf("%w: %s", errLostNode, in.node)
	}
	return err
}

// writes does the work of a client that is in alone.
func (in mixedIn) writes() (err error) {
	defer func() { in.clear(in.dir+"/busy/w"+in.name, err) }()
	mark, err := in.enter("w"+in.name, zk.FlagEphemeral)
	if err != nil {
		return err
	}
	there, _, err := in.c.Children(in.dir + "/busy")
	if err != nil {
		return err
	}
	if slices.Contains(there, "w") && len(there) > 1 {
		return fmt.Errorf("%w: %s writes beside %v", errBeside, in.node, there)
	}
	data, _, err := in.c.Get(in.dir + "/count" + in.name)
	if err != nil {
		return err
	}
	count, err := strconv.Atoi(string(data))
	if err != nil {
		return err
	}
	return in.leave(mark, "w", &zk.SetDataRequest{Path: in.dir + "/count" + in.name, Data: []byte(strconv.Itoa(count + 1)), Version: -1})
}

// shares does the work of a reader, or of a client with k permits.
func (in mixedIn) shares(kind string) error {
	mark, err := in.enter(kind+"-", zk.FlagEphemeralSequential)
	if err != nil {
		return err
	}
	there, _, err := in.c.Children(in.dir + "/busy")
	if err != nil {
		return err
	}
	used := 0
	for _, name := range there {
		if name[0] == 'p' {
			used += int(name[1] - '0')
		}
	}
	if slices.Contains(there, path.Base(mark)) && (slices.Contains(there, "w") || used > mixedLimit) {
		return fmt.Errorf("%w: %s is in beside %v", errBeside, in.node, there)
	}
	time.Sleep(rand.N(3 * time.Millisecond))
	return in.leave(mark, kind)
}

// next reports whether to stop, and otherwise chooses the lock: the same again, or one of the
// next three names.
func (in *mixedIn) next(recipe string) (over bool, err error) {
	over, _, err = in.c.Exists(in.dir + "/over")
	if over || err != nil || recipe != "names" || in.name != "" && rand.IntN(4) > 0 {
		return over, err
	}
	_, log, err := in.c.Exists(in.dir + "/log")
	if err == nil {
		in.name = fmt.Sprintf("-%d", (int(log.NumChildren)/5+rand.IntN(3))%mixedNames)
	}
	return false, err
}

func contendGoZookeeper(addr, dir, recipe string) error {
	c, _, err := zk.Connect([]string{addr}, mixedSession, zk.WithLogger(quiet{}))
	if err != nil {
		return err
	}
	defer c.Close()
	in := mixedIn{c: c, dir: dir, who: "go-zookeeper"}
	for {
		if over, err := in.next(recipe); over || err != nil {
			return err
		}
		l := zk.NewLock(c, dir+"/lock"+in.name, zk.WorldACL(zk.PermAll))
		if err := l.Lock(); err != nil {
			return err
		}
		in.node = reflect.ValueOf(l).Elem().FieldByName("lockPath").String() // it has no getter
		if err := errors.Join(in.writes(), l.Unlock()); err != nil {
			return err
		}
		rest()
	}
}

func contendZklock(addr, dir, recipe string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	s, err := zklock.Connect(ctx, addr, zklock.WithSessionTimeout(mixedSession), zklock.WithLease(zklock.SingleServerLease()), zklock.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	defer s.Close()
	in := mixedIn{c: s.Conn(), dir: dir, who: "zklock"}
	for {
		if over, err := in.next(recipe); over || err != nil {
			return err
		}
		if err := in.round(ctx, s, recipe); err != nil {
			if errors.Is(err, errBeside) {
				return err
			}
			fmt.Println("round:", err)
		}
		rest()
	}
}

// round is one acquire with our recipe. An error other than errBeside is caused by a killed
// session.
func (in mixedIn) round(ctx context.Context, s *zklock.Session, recipe string) error {
	ctx, cancel := context.WithTimeout(ctx, mixedPatience)
	defer cancel()
	lock, data := in.dir+"/lock"+in.name, zklock.WithData([]byte("zklock"))
	work := func(does func(mixedIn) error) func(context.Context, *zklock.Hold) error {
		return func(_ context.Context, hold *zklock.Hold) error {
			in.node = hold.Node()
			return does(in)
		}
	}
	switch recipe {
	case "mutex", "names":
		m, err := zklock.NewMutex(s, lock, data, zklock.WithContainer()) // only the root of a new name is missing
		if err != nil {
			return err
		}
		return m.Do(ctx, work(mixedIn.writes))
	case "readwrite":
		m, err := zklock.NewRWMutex(s, lock, data)
		if err != nil {
			return err
		}
		read := work(func(in mixedIn) error { return in.shares("r") })
		if rand.IntN(3) > 0 {
			return m.ReadLock().Do(ctx, read)
		}
		w, err := m.WriteLock().Acquire(ctx)
		if err != nil {
			return err
		}
		worked := work(mixedIn.writes)(ctx, w)
		if worked != nil || rand.IntN(2) == 0 {
			return errors.Join(worked, w.Release(ctx))
		}
		r, err := m.ReadLock().Acquire(w.Context()) // it continues as a reader
		if err != nil {
			return errors.Join(err, w.Release(ctx))
		}
		return errors.Join(w.Release(ctx), read(ctx, r), r.Release(ctx))
	case "semaphore":
		m, err := zklock.NewSemaphore(s, lock, mixedLimit, data)
		if err != nil {
			return err
		}
		k := 1 + rand.IntN(mixedLimit)
		return m.Permits(k).Do(ctx, work(func(in mixedIn) error { return in.shares(fmt.Sprint("p", k)) }))
	}
	opts := []zklock.ElectionOption{data}
	if recipe == "latch" {
		opts = append(opts, zklock.WithLatchNodes())
	}
	e, err := zklock.NewElection(s, lock, opts...)
	if err != nil {
		return err
	}
	return e.Campaign(ctx, work(mixedIn.writes))
}
