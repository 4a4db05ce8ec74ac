package dial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// lookupCap is how long a lookup may take, even when no dial waits for it any more.
const lookupCap = 30 * time.Second

// names resolves host names, again in each lap. If a lookup takes longer than one dial may wait, it
// continues and serves the next dial. While the name server is slow or unreachable, names uses the
// last addresses that it returned (F46).
type names struct {
	lookup func(ctx context.Context, host string) ([]string, error)
	ctx    context.Context // ends with the Session

	mu struct {
		sync.Mutex // never held across a lookup
		byHost     map[string]*hostName
	}
}

type hostName struct {
	addrs  []string      // of the last lookup that returned any
	err    error         // of the last lookup
	asking chan struct{} // closed when the current lookup ends; nil if none is running
}

// resolve returns the addresses of a host. It waits for the lookup until ctx ends, but only for
// patience if it has older addresses. spawn starts the lookup, and reports whether it could.
func (n *names) resolve(ctx context.Context, spawn func(func()) bool, host string, patience time.Duration) ([]string, error) {
	n.mu.Lock()
	h := n.mu.byHost[host]
	if h == nil {
		h = &hostName{}
		n.mu.byHost[host] = h
	}
	asking, known := h.asking, len(h.addrs) > 0
	start := asking == nil
	if start {
		asking = make(chan struct{})
		h.asking = asking
	}
	n.mu.Unlock()
	switch isOpen := !start || spawn(func() { n.lookUp(n.ctx, h, host) }); {
	case !isOpen && known:
		n.noteLookUp(h, nil, net.ErrClosed) // the Session is being closed; older addresses will do
	case !isOpen: // a name that was never tried, perhaps of the only server that serves
		n.lookUp(ctx, h, host)
	}
	if known {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	var ended error
	select {
	case <-asking:
	case <-ctx.Done():
		ended = context.Cause(ctx)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case len(h.addrs) > 0:
		return h.addrs, nil
	case ended != nil:
		return nil, fmt.Errorf("looking up %s: no answer from the name server in time (%w)", host, ended)
	}
	return nil, h.err
}

func (n *names) lookUp(ctx context.Context, h *hostName, host string) {
	ctx, cancel := context.WithTimeout(ctx, lookupCap)
	defer cancel()
	addrs, err := n.lookup(ctx, host)
	if err == nil && len(addrs) == 0 {
		err = errors.New("no address for " + host)
	}
	n.noteLookUp(h, addrs, err)
}

// noteLookUp records the result of a lookup, for all callers that wait for it.
func (n *names) noteLookUp(h *hostName, addrs []string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if h.err = err; err == nil {
		h.addrs = addrs
	}
	close(h.asking)
	h.asking = nil
}
