package main

// What the lab asks of a lock. Each system is a file of its own that registers itself here.

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"
)

// Lock is one client's end of one lock of one system. It is used by one goroutine at a time.
type Lock interface {
	// Acquire waits until the lock is this client's, or ctx ends.
	Acquire(ctx context.Context) (Hold, error)
	// Close ends the client's connections. It does not release.
	Close() error
}

// Hold is one successful acquire.
type Hold interface {
	// Token returns the fencing token: a number that grows with each grant of the lock. It returns false if the system has none.
	Token() (int64, bool)
	// Lost is closed when the client learns that it holds no more. It is nil if the system never tells.
	Lost() <-chan struct{}
	// Release gives the lock up. It returns an error if the client learns by it that it held no more, and nothing if the system
	// does not tell.
	Release(ctx context.Context) error
}

// Looker is implemented by holds that can tell from memory, at any moment, whether they still hold: Look returns nil or why not.
// Before each write a client looks, or, without a Looker, sees whether Lost is closed.
type Looker interface{ Look() error }

// Sharer is implemented by locks that readers hold together; Acquire is a writer's then.
type Sharer interface {
	AcquireShared(ctx context.Context) (Hold, error)
}

// Downgrader is implemented by a writer's holds that can become a reader's: Share takes the reader's hold beside the writer's, which
// is released next.
type Downgrader interface {
	Share(ctx context.Context) (Hold, error)
}

// Sequenced is implemented by holds whose writes take a sequencer along, for System.Resource: a word.
type Sequenced interface{ Sequenced() string }

// A kind is what a lock is for. An experiment is about one kind.
type kind string

const (
	exclusive kind = ""        // one holds
	readers   kind = "readers" // readers hold together, a writer alone
	permits   kind = "permits" // two hold
)

// room is how many may hold who do not share.
func (k kind) room() int {
	if k == permits {
		return 2
	}
	return 1
}

// Options are what a client is told beside the addresses and the name of the lock.
type Options struct {
	Client string        // the client's name; a client that is started again has it again
	TTL    time.Duration // the lock's time: its expiry, its lease, its session timeout
	Size   int           // how many servers there are
	Tick   time.Duration // ZooKeeper's
}

// errBusy is what Acquire returns when its context ends while somebody else holds. Any other error is a failure.
var errBusy = errors.New("somebody else holds")

// A System is one way to lock: a row of the page.
type System struct {
	Name     string // as -only and the children have it: lower case, with dashes
	Title    string // as the page has it
	Client   string // the library with its version, or "written here"
	Package  string // Debian's, whose version is the client's, where the build does not know it
	Promises string // what its authors promise, in a sentence, and what they do not

	Kind   kind
	Server *ServerKind // what it needs
	Checks bool        // it checks the lab, and is no row of the page
	Sizes  []int       // with how many servers it is tried; the first is what an experiment takes unless it needs another

	Expires bool // the servers free the lock by themselves, TTL after they last heard of the holder
	Renews  bool // a healthy holder's lock does not expire: something extends it

	Only       []string      // the experiments in which it has a part; nil for all
	Downgrades bool          // a writer can become a reader
	Delay      time.Duration // by how much longer than others' its lock may stay with nobody when a holder has failed

	// Open connects a client. The addresses are those of proxies, one for each server in the server's order.
	Open func(ctx context.Context, addrs []string, lock string, o Options) (Lock, error)
	// External, if set, returns the program that is the client in place of Open: it takes the arguments that `lab client` takes,
	// and speaks the same lines. dir is a scratch directory in which it may compile.
	External func(ctx context.Context, dir string) ([]string, error)
	// Resource, if set, is a resource that asks the lock's servers about each write: whether the hold of the writer's sequencer stands.
	Resource func(ctx context.Context, addrs []string, lock string, o Options) (stands func(sequencer string) (bool, error), close func() error, err error)
	// Left counts what the servers have of a lock: nodes, keys, rows. It connects to the servers directly. It may be nil.
	Left func(ctx context.Context, addrs []string, lock string) (int, error)
	// Break takes the lock from whoever holds it, as somebody may who does not own it and uses the system's own release. It returns
	// false if the system refused. It may be nil, where a client has no call for it.
	Break func(ctx context.Context, addrs []string, lock string) (bool, error)
}

var systems []*System

// register adds a system. The page has them in the order of their names' files.
func register(s System) {
	if !regexp.MustCompile(`^[a-z0-9-]+$`).MatchString(s.Name) {
		panic(fmt.Sprintf("the system's name %q", s.Name))
	}
	if slices.ContainsFunc(systems, func(o *System) bool { return o.Name == s.Name }) {
		panic("two systems are called " + s.Name)
	}
	systems = append(systems, &s)
}

// find returns a system by its name.
func find(name string) (*System, error) {
	for _, s := range systems {
		if s.Name == name {
			return s, nil
		}
	}
	return nil, fmt.Errorf("no system is called %q", name)
}
