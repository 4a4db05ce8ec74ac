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
// kernel has reported that. Dead tries one server after the other until ctx ends. It returns no
// error when a server has confirmed the end, or has no such session; was is false if the session
// did not exist any more before the first attempt. open connects to a server within its ctx, and
// returns the credentials for the connection.
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
) (was bool, err error) {
	servers = slices.Clone(servers)
	rand.Shuffle(len(servers), func(i, j int) { servers[i], servers[j] = servers[j], servers[i] })
	last, limit, taken := errors.New("too much time has passed"), FirstLimit, 0
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		for _, server := range servers {
			if ctx.Err() != nil {
				return was, last
			}
			began := time.Now()
			there, sent, err := deadAt(ctx, limit, session, server, open)
			if err == nil {
				return was || there, nil
			}
			was, last = was || sent, fmt.Errorf("%s: %w", server, err)
			if there {
				taken++
			}
			if taken == maxTaken || errors.Is(err, ErrRefused) {
				return was, last
			}
			if time.Since(began) >= limit {
				limit = min(2*limit, longestLimit)
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return was, last
		}
	}
}

// deadAt is one attempt of Dead. there reports whether the server attached us to the session, and
// sent whether there was a connection. With SASL the server may have attached us if no response
// arrives: the request to end the session follows later.
func deadAt(
	ctx context.Context, limit time.Duration, session wire.ConnectRequest, server string,
	open func(ctx context.Context, server string) (net.Conn, Credentials, error),
) (there, sent bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn, shown, err := open(ctx, server)
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
