package dial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// lookupCap is how long a lookup may take, even when no dial waits for it any more.
const lookupCap = 30 * time.Second

// hostName is a name, which is resolved again in each lap. If a lookup takes longer than one dial
// may wait, it continues and serves the next dial. While the name server is slow or unreachable,
// the last addresses that it returned are used (F46).
type hostName struct {
	addrs  []string      // of the last lookup that returned any
	err    error         // of the last lookup
	asking chan struct{} // closed when the current lookup ends; nil if none is running
}

// resolve returns the addresses of a host. It waits for the lookup until ctx ends, but only for
// patience if it has older addresses.
func (d *Dialer) resolve(ctx context.Context, host string, patience time.Duration) ([]string, error) {
	d.names.Lock()
	h := d.names.byHost[host]
	if h == nil {
		h = &hostName{}
		d.names.byHost[host] = h
	}
	asking, known := h.asking, len(h.addrs) > 0
	start := asking == nil
	if start {
		asking = make(chan struct{})
		h.asking = asking
	}
	d.names.Unlock()
	switch isOpen := !start || d.spawn(func() { d.lookUp(d.ctx, h, host) }); {
	case !isOpen && known:
		d.noteLookUp(h, nil, net.ErrClosed) // the Session is being closed; older addresses will do
	case !isOpen: // a name that was never tried, perhaps of the only server that serves
		d.lookUp(ctx, h, host)
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
	d.names.Lock()
	defer d.names.Unlock()
	switch {
	case len(h.addrs) > 0:
		return h.addrs, nil
	case ended != nil:
		return nil, fmt.Errorf("looking up %s: no answer from the name server in time (%w)", host, ended)
	}
	return nil, h.err
}

func (d *Dialer) lookUp(ctx context.Context, h *hostName, host string) {
	ctx, cancel := context.WithTimeout(ctx, lookupCap)
	defer cancel()
	addrs, err := d.how.Lookup(ctx, host)
	if err == nil && len(addrs) == 0 {
		err = errors.New("no address for " + host)
	}
	d.noteLookUp(h, addrs, err)
}

// noteLookUp records the result of a lookup, for all callers that wait for it.
func (d *Dialer) noteLookUp(h *hostName, addrs []string, err error) {
	d.names.Lock()
	defer d.names.Unlock()
	if h.err = err; err == nil {
		h.addrs = addrs
	}
	close(h.asking)
	h.asking = nil
}
