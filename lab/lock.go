package main

// The interface between the lab and a lock. Each system is a file of its own that registers itself
// here.

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
	// Acquire waits until this client has the lock, or ctx ends.
	Acquire(ctx context.Context) (Hold, error)
	// Close closes the client's connections. It does not release.
	Close() error
}

// Hold is one successful acquire.
type Hold interface {
	// Token returns the fencing token: a number that grows with each grant of the lock. It returns
	// false if the system has none.
	Token() (int64, bool)
	// Lost is closed when the client is notified that its hold has ended. It is nil for a system
	// without notification.
	Lost() <-chan struct{}
	// Release releases the lock. It returns an error if the client learns that its hold had already
	// ended. It returns nil if the system does not report that.
	Release(ctx context.Context) error
}

// Looker is implemented by holds that can report from memory, at any moment, whether they are still
// valid: Look returns nil or the reason. Before each write a client calls Look, or, without a
// Looker, checks whether Lost is closed.
type Looker interface{ Look() error }

// Sharer is implemented by locks that readers can hold together; Acquire is then for a writer.
type Sharer interface {
	AcquireShared(ctx context.Context) (Hold, error)
}

// Downgrader is implemented by a writer's holds that can become a reader's: Share takes the
// reader's hold before the writer's hold is released.
type Downgrader interface {
	Share(ctx context.Context) (Hold, error)
}

// Sequenced is implemented by holds whose writes carry a sequencer, one word, for System.Resource.
type Sequenced interface{ Sequenced() string }

// A kind is the purpose of a lock. An experiment is about one kind.
type kind string

const (
	exclusive kind = ""        // one holds
	readers   kind = "readers" // readers hold together, a writer alone
	permits   kind = "permits" // two hold
)

// room is how many exclusive holds are allowed at a time.
func (k kind) room() int {
	if k == permits {
		return 2
	}
	return 1
}

// Options are a client's settings, apart from the addresses and the name of the lock.
type Options struct {
	Client string        // the client's name, which it keeps when it is started again
	TTL    time.Duration // the lock's time: its expiry, its lease, its session timeout
	Size   int           // how many servers there are
	Tick   time.Duration // ZooKeeper's
}

// errBusy is the error of Acquire if its context ends while another client holds. Any other error
// is a failure.
var errBusy = errors.New("somebody else holds")

// A System is one way to lock: a row of the page.
type System struct {
	Name     string // as in -only and for the children: lower case, with dashes
	Title    string // as on the page
	Client   string // the library with its version, or "written here"
	Package  string // Debian's package, whose version is the client's if the build does not have it
	Promises string // what its authors promise and do not promise, in a sentence

	Kind   kind
	Server *ServerKind // the servers that it needs
	Checks bool        // it checks the lab, and has no row on the page
	Sizes  []int       // the numbers of servers with which it is tried; experiments use the first unless they need another

	Expires bool // the servers free the lock by themselves, TTL after the holder's last request
	Renews  bool // a healthy holder's lock does not expire: its client extends it

	Only       []string      // the experiments in which it takes part; nil for all
	Downgrades bool          // a writer can become a reader
	Delay      time.Duration // how much longer than in other systems the lock may have no holder after a holder's failure

	// Open connects a client. The addresses are those of proxies, one for each server in the
	// server's order.
	Open func(ctx context.Context, addrs []string, lock string, o Options) (Lock, error)
	// External, if set, returns the program of the client, which replaces Open. It takes the
	// arguments of `lab client`, and uses the same protocol. dir is a scratch directory in which it
	// may compile.
	External func(ctx context.Context, dir string) ([]string, error)
	// Resource, if set, is a resource that asks the lock's servers about each write: whether the
	// hold of the writer's sequencer is still valid.
	Resource func(ctx context.Context, addrs []string, lock string, o Options) (stands func(sequencer string) (bool, error), close func() error, err error)
	// Left counts the nodes, keys or rows of a lock on the servers. It connects to the servers
	// directly. It may be nil.
	Left func(ctx context.Context, addrs []string, lock string) (int, error)
	// Break takes the lock from its holder with the system's own release, as a client may that does
	// not own it. It returns false if the system rejected that. It may be nil, if a client has no
	// call for it.
	Break func(ctx context.Context, addrs []string, lock string) (bool, error)
}

var systems []*System

// register adds a system. The page lists the systems in the order of their files.
func register(s System) {
	if !regexp.MustCompile(`^[a-z0-9-]+$`).MatchString(s.Name) {
		panic(fmt.Sprintf("the system's name %q", s.Name))
	}
	if slices.ContainsFunc(systems, func(o *System) bool { return o.Name == s.Name }) {
		panic("two systems are called " + s.Name)
	}
	systems = append(systems, &s)
}

func find(name string) (*System, error) {
	for _, s := range systems {
		if s.Name == name {
			return s, nil
		}
	}
	return nil, fmt.Errorf("no system is called %q", name)
}
