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

// Dead ends the session of a process that is dead: another process may end a session only if the
// kernel has reported that. Dead tries one server after the other until ctx ends. It returns nil
// when a server has confirmed the end, or has no such session. open connects to a server within its
// ctx, and returns the credentials for the connection.
//
// An attempt ends after a short time without a response, and the next one gets twice the time, up
// to two seconds, as in Session.
//
// Attaching to a session renews it. So Dead does not attach again after a server has rejected the
// end of the session, and attaches only a few times if no server confirms it. The session then
// expires as it would have without us.
func Dead(
	ctx context.Context, session wire.ConnectRequest, servers []string,
	open func(ctx context.Context, server string) (net.Conn, Credentials, error),
) error {
	servers = slices.Clone(servers)
	rand.Shuffle(len(servers), func(i, j int) { servers[i], servers[j] = servers[j], servers[i] })
	last, limit, taken := errors.New("too much time has passed"), FirstLimit, 0
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		for _, server := range servers {
			if ctx.Err() != nil {
				return last
			}
			began := time.Now()
			there, err := deadAt(ctx, limit, session, server, open)
			if err == nil {
				return nil
			}
			last = fmt.Errorf("%s: %w", server, err)
			if there {
				taken++
			}
			if taken == maxTaken || errors.Is(err, ErrRefused) {
				return last
			}
			if time.Since(began) >= limit {
				limit = min(2*limit, longestLimit)
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return last
		}
	}
}

// deadAt is one attempt of Dead. there reports whether the server attached us to the session. With
// SASL it may have attached us if no response arrives: the request to end the session follows later.
func deadAt(
	ctx context.Context, limit time.Duration, session wire.ConnectRequest, server string,
	open func(ctx context.Context, server string) (net.Conn, Credentials, error),
) (there bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn, shown, err := open(ctx, server)
	if err == nil {
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
		there, err = Close(conn, session, shown)
		there = there || shown.SASL != nil
	}
	var code wire.Code
	if errors.As(err, &code) && code != wire.SessionMoved && code != wire.Throttled || Refused(err) {
		err = fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return there, err
}
