package command

// The end of a killed zklock's ZooKeeper session by another process, the guardian.

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"github.com/zklock/zklock/cmd/zklock/internal/supervise"
	"github.com/zklock/zklock/internal/certs"
	"github.com/zklock/zklock/internal/expire"
	"github.com/zklock/zklock/internal/sessionkey"
	jute "github.com/zklock/zklock/internal/wire"
)

// ending has everything that the guardian needs to end zklock's ZooKeeper session. It is sent to
// the guardian over the socket pair only.
type ending struct {
	sessionkey.Key
	Creds credentials
	TLS   *tlsFiles // nil for none
	Lock  string    // for messages

	Delay time.Duration // the lock-delay, which begins with the end of the session; 0 for none
}

func (c *connection) ending(lock string) *ending {
	return &ending{Key: c.key(), Creds: c.creds(), TLS: c.forGuardian(), Lock: lock}
}

// will returns the data for the guardian, nil while there is no session.
func (e *ending) will() []byte {
	if e.ID == 0 {
		return nil
	}
	b, err := json.Marshal(e)
	if err != nil {
		panic("zklock: " + err.Error()) // all its fields have a JSON form
	}
	return b
}

// carryOut, called by the guardian, ends the ZooKeeper session of a zklock that was killed, so that
// the next holder need not wait until it expires.
func carryOut(will []byte, since supervise.Moment) {
	var e ending
	if err := json.Unmarshal(will, &e); err != nil {
		panic("zklock: " + err.Error()) // zklock wrote it
	}
	if err := e.end(since); err != nil {
		fmt.Fprintf(stderr(), "zklock: %s: its ZooKeeper session was not ended: %v; others get the lock when it expires, within %v\n",
			e.Lock, err, e.Timeout)
		return
	}
	fmt.Fprintf(stderr(), "zklock: %s: ended its ZooKeeper session: %s\n", e.Lock, e.after())
}

// after describes when another client can get the lock after the end of the session.
func (e *ending) after() string {
	if e.Delay > 0 {
		return fmt.Sprintf("others get the lock after the lock-delay of %v", e.Delay)
	}
	return "the lock is free"
}

const (
	lapPause = 100 * time.Millisecond
	maxTaken = 5 // how often a server may attach us without confirming the end of the session
)

// errRefused means that a server rejected the end of the session: it wants credentials that we do
// not have, or resumes no sessions.
var errRefused = errors.New("the server rejected the request")

// end tries one server after the other, and returns nil when one has confirmed the end of the
// session. It gives up one and a half session timeouts after the session's own client died: by then
// the session has expired. (By default a tick is half of the shortest timeout.)
//
// After an attempt without a response in time, the next one gets twice the time, as in
// expire.Session.
//
// Attaching to a session renews it. So end does not attach again after a server has rejected the
// end of the session, and attaches only a few times if no server confirms it. The session then
// expires as it would have without us.
func (e *ending) end(gone supervise.Moment) error {
	until := gone.Add(e.Timeout + e.Timeout/2)
	creds, err := e.Creds.open()
	if err != nil {
		return err
	}
	var base *tls.Config
	var files *certs.Files
	if e.TLS != nil {
		if base, files, err = e.TLS.open(); err != nil {
			return err
		}
	}
	servers := slices.Clone(e.Servers)
	rand.Shuffle(len(servers), func(i, j int) { servers[i], servers[j] = servers[j], servers[i] })
	last, limit, taken := errors.New("too much time has passed"), expire.FirstLimit, 0
	failed := func(began time.Time, err error) {
		last = err
		if time.Since(began) >= limit {
			limit = min(2*limit, e.Timeout)
		}
	}
	for supervise.Now() < until {
		for _, server := range servers {
			// Dial each address of a name separately: the dialer would spend all the time on the
			// first.
			name, port, _ := net.SplitHostPort(server)
			began := time.Now()
			ips, err := lookup(name, limit)
			if err != nil {
				failed(began, err)
			}
			for _, ip := range ips {
				left := until.Sub(supervise.Now())
				if left <= 0 {
					return last
				}
				var config *tls.Config
				if base != nil {
					config = configFor(base, files, server)
				}
				began = time.Now()
				in, err := e.endAt(net.JoinHostPort(ip, port), server, config, creds, min(limit, left))
				if err == nil {
					return nil
				}
				failed(began, fmt.Errorf("%s: %w", server, err))
				if in {
					taken++
				}
				if taken == maxTaken || errors.Is(err, errRefused) {
					return last
				}
			}
		}
		time.Sleep(lapPause)
	}
	return last
}

func lookup(name string, limit time.Duration) (ips []string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return net.DefaultResolver.LookupHost(ctx, name)
}

// endAt ends the session on the server with this address and name. in reports whether the server
// attached us to the session.
func (e *ending) endAt(addr, server string, config *tls.Config, creds credentials, limit time.Duration) (in bool, err error) {
	deadline := time.Now().Add(limit)
	dialer := net.Dialer{Deadline: deadline}
	conn, err := dialer.Dial("tcp", addr)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(deadline)
	if config != nil {
		conn = tls.Client(conn, config)
	}
	shown, err := creds.forOne(deadline, server)
	session := jute.ConnectRequest{Timeout: int32(e.Timeout.Milliseconds()), SessionID: e.ID, Password: e.Password}
	if err == nil {
		in, err = expire.Close(conn, session, shown)
	}
	var code jute.Code
	if errors.As(err, &code) && code != jute.SessionMoved && code != jute.Throttled || expire.Refused(err) {
		err = fmt.Errorf("%w: %w", errRefused, err)
	}
	return in, err
}
