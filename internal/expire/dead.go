package expire

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"github.com/zklock/zklock/internal/wire"
)

const (
	firstPause   = 100 * time.Millisecond // after a lap over the servers; it doubles
	longestPause = time.Second
	longestLimit = 2 * time.Second
	maxTaken     = 5 // how often a server may attach us without confirming the end of the session
)

// ErrRefused means that a server rejected the end of the session: it wants credentials that we do
// not have, or resumes no sessions.
var ErrRefused = errors.New("the server rejected the request")

// Ensemble is how Dead reaches the servers. Its functions must return when their ctx ends.
type Ensemble struct {
	Servers   []string
	Addresses func(ctx context.Context, server string) ([]string, error) // in random order
	// Open connects to an address of a server, and returns the credentials for the connection.
	Open func(ctx context.Context, server, at string) (net.Conn, Credentials, error)
	// Failed is called once, if the first attempt has failed and others follow; it may be nil.
	Failed func(err error)
}

// Dead ends the session of a process that is dead: another process may end a session only if the
// kernel has reported that. Dead tries each address of one server after the other until ctx ends.
// It returns no error when a server has confirmed the end, or has no such session; was is false if
// the session did not exist any more before the first attempt.
//
// An attempt ends after a short time without a response, and the next one gets twice the time, up
// to two seconds, as in Session.
//
// Attaching to a session renews it. So Dead does not attach again after a server has rejected the
// end of the session, and attaches only a few times if no server confirms it. The session then
// expires as it would have without us.
func Dead(ctx context.Context, session wire.ConnectRequest, ensemble Ensemble) (was bool, err error) {
	servers := slices.Clone(ensemble.Servers)
	rand.Shuffle(len(servers), func(i, j int) { servers[i], servers[j] = servers[j], servers[i] })
	last, limit, taken, failed := errors.New("too much time has passed"), FirstLimit, 0, ensemble.Failed
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		for _, server := range servers {
			began := time.Now()
			addrs, err := ensemble.addresses(ctx, limit, server)
			for _, at := range addrs {
				if ctx.Err() != nil {
					return was, last
				}
				there, sent := false, false
				if err == nil {
					there, sent, err = ensemble.deadAt(ctx, limit, session, server, at)
				}
				if err == nil {
					return was || there, nil
				}
				was, last = was || sent, fmt.Errorf("%s: %w", at, err)
				if there {
					taken++
				}
				if taken == maxTaken || errors.Is(err, ErrRefused) {
					return was, last
				}
				if failed != nil {
					failed(last)
					failed = nil
				}
				if time.Since(began) >= limit {
					limit = min(2*limit, longestLimit)
				}
				began, err = time.Now(), nil
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return was, last
		}
	}
}

// addresses returns the server's name if its addresses are unknown.
func (e Ensemble) addresses(ctx context.Context, limit time.Duration, server string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	addrs, err := e.Addresses(ctx, server)
	if err != nil {
		return []string{server}, err
	}
	return addrs, nil
}

// deadAt is one attempt of Dead. there reports whether the server attached us to the session, and
// sent whether there was a connection. With SASL the server may have attached us if no response
// arrives: the request to end the session follows later.
func (e Ensemble) deadAt(ctx context.Context, limit time.Duration, session wire.ConnectRequest, server, at string) (there, sent bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn, shown, err := e.Open(ctx, server, at)
	if err == nil {
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
		sent = true
		there, err = Close(conn, session, shown)
		there = there || err != nil && shown.SASL != nil
	}
	var code wire.Code
	if errors.As(err, &code) && code != wire.SessionMoved && code != wire.Throttled || Refused(err) {
		err = fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return there, sent, err
}
