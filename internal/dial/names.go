package dial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// lookupCap is how long a look-up may go on, also when nobody waits for it any more.
const lookupCap = 30 * time.Second

// names resolves host names, again in each lap. If a lookup takes longer than one dial may wait, it
// goes on and serves the next dial. While the name server is slow or away, names uses the addresses
// that it gave before (F46).
type names struct {
	lookup func(ctx context.Context, host string) ([]string, error)
	ctx    context.Context // ends with the Session

	mu struct {
		sync.Mutex // never held across a look-up
		byHost     map[string]*hostName
	}
}

type hostName struct {
	addrs  []string      // of the last look-up that gave any
	err    error         // of the last look-up
	asking chan struct{} // closed when the look-up under way is done; nil if there is none
}

// resolve returns the addresses of a host. It waits for the look-up until ctx ends, but only for patience if it knows older
// addresses. spawn starts the look-up, and says whether it could.
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
	if start && !spawn(func() { n.lookUp(h, host) }) {
		n.noteLookUp(h, nil, net.ErrClosed) // the Session is being closed; older addresses will do
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

func (n *names) lookUp(h *hostName, host string) {
	ctx, cancel := context.WithTimeout(n.ctx, lookupCap)
	defer cancel()
	addrs, err := n.lookup(ctx, host)
	if err == nil && len(addrs) == 0 {
		err = errors.New("no address for " + host)
	}
	n.noteLookUp(h, addrs, err)
}

// noteLookUp notes the outcome of a look-up, for all who wait for it.
func (n *names) noteLookUp(h *hostName, addrs []string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if h.err = err; err == nil {
		h.addrs = addrs
	}
	close(h.asking)
	h.asking = nil
}
