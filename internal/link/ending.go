package link

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/zklock/zklock/internal/expire"
	"github.com/zklock/zklock/internal/sessionkey"
	"github.com/zklock/zklock/internal/wire"
)

// End closes the link, ends the ZooKeeper session, and waits for all goroutines. It is called once,
// after Start.
//
// An attached client sends the end of the session itself. Otherwise, for example because no message
// reaches the client, End sends it.
func (l *Link) End(why error) {
	z, _, conn := l.now()
	l.close(why)
	if z != nil && conn == 0 && !z.leftToExpire() {
		l.endApart(z, nil, time.Now().Add(apart*3/4))
	}
	l.client.Close()
	if _, t, _ := l.now(); t != nil {
		t.Cut()
	}
	l.work.Wait()
}

// close makes the link unusable, once, and notifies all waiting callers.
func (l *Link) close(why error) {
	l.mu.Lock()
	if l.mu.why != nil {
		l.mu.Unlock()
		return
	}
	l.mu.why = why
	z := l.mu.session
	l.broadcastLocked()
	l.mu.Unlock()
	l.dials.Close()
	if z != nil {
		z.Lose(why)
	}
	l.mu.Lock()
	l.stepLocked(stateEvent{kind: closed, err: why})
	l.mu.Unlock()
	l.Closed()
}

// ClosedErr returns why the link is closed.
func (l *Link) ClosedErr() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.why == nil {
		return ErrClosed
	}
	return l.mu.why
}

func (c *connection) AskedToEnd(outcome expire.Outcome) {
	if z := c.zkSession(); z != nil {
		if outcome == expire.NoAnswer {
			z.noteUnanswered(c.link.SASL != nil)
		}
		c.link.endRequested(z, c.server(), outcome)
	}
}

func (c *connection) Ended() {
	if z := c.zkSession(); z != nil {
		c.link.over(z)
	}
}

// over notes that z does not exist on the servers any more.
func (l *Link) over(z *ZKSession) {
	if l.Over != nil {
		l.Over(z.ID)
	}
}

// Key returns all that another process needs to end the session.
func (l *Link) Key(z *ZKSession) sessionkey.Key {
	return sessionkey.Key{ID: z.ID, Password: slices.Clone(z.Password.Reveal()), Timeout: z.Timeout(), Servers: slices.Clone(l.Addrs)}
}

func (l *Link) endRequested(z *ZKSession, server string, outcome expire.Outcome) {
	l.Log.Info("zklock: asked a server to end the given-up session", "session", fmt.Sprintf("%#x", z.ID), "server", server, "outcome", string(outcome))
	if outcome.IsOver() {
		l.over(z)
	}
}

// apart is the time limit for ending a session over separate connections.
const apart = 2 * time.Second

// askAgain asks the servers to end a session that was left to expire, until one has responded, for
// two seconds at most. Meanwhile no request is sent in the next session, so that its nodes do not
// queue behind our own (I2). If our connection ends first, askAgain runs again on the next one.
func (l *Link) askAgain() {
	l.mu.Lock()
	z, c := l.mu.unended, l.mu.conn
	l.mu.Unlock()
	until := time.Now().Add(apart)
	isAnswered := l.endApart(z, c, until)
	for !isAnswered && time.Until(until) > apart/8 { // a leader is being elected, perhaps
		time.Sleep(apart / 8)
		isAnswered = l.endApart(z, c, until)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.asking = false
	if isAnswered || l.mu.conn == c && c.shaken {
		l.mu.unended = nil
	}
	l.attachLocked()
}

// endApart asks the servers one after the other to end a session, each over a separate connection,
// until one responds. A name may have several addresses, some of which lead to a server that
// accepts connections and does not serve: endApart tries each, and begins with the server of the
// connection first, if it is not nil. The names share the time, and so do the addresses of a name.
func (l *Link) endApart(z *ZKSession, first *connection, until time.Time) (isAnswered bool) {
	servers, at := slices.Clone(l.Addrs), ""
	if first != nil {
		at = first.mux.RemoteAddr().String()
		toFront(servers, first.addr)
	}
	for i, server := range servers {
		until := share(until, len(servers)-i)
		ctx, cancel := context.WithDeadline(context.Background(), until)
		addrs, err := l.dials.Addresses(ctx, server)
		cancel()
		if err != nil {
			l.endRequested(z, server, notAsked(err))
		}
		toFront(addrs, at)
		for j, addr := range addrs {
			if l.endAt(z, server, addr, share(until, len(addrs)-j)) {
				return true
			}
		}
	}
	return false
}

// share returns the deadline of the next of n tries that share the time.
func share(until time.Time, n int) time.Time {
	return time.Now().Add(time.Until(until) / time.Duration(n))
}

func toFront(addrs []string, addr string) {
	if i := slices.Index(addrs, addr); i > 0 {
		addrs[0], addrs[i] = addrs[i], addrs[0]
	}
}

// notAsked is the outcome of a try without a connection.
func notAsked(err error) expire.Outcome {
	return expire.Outcome(fmt.Sprintf("no connection: %v", err))
}

func (l *Link) endAt(z *ZKSession, server, addr string, deadline time.Time) (isAnswered bool) {
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	c, raw, err := l.dials.Once(ctx, server, addr)
	if err != nil {
		l.endRequested(z, addr, notAsked(err))
		return false
	}
	defer raw.Close()
	_ = c.SetDeadline(deadline)
	ask := wire.ConnectRequest{Timeout: int32(z.Timeout().Milliseconds()), SessionID: z.ID, Password: z.Password.Reveal()}
	outcome := expire.NoAnswer
	if exchange, err := l.startSASL(ctx, server); err == nil {
		outcome = expire.OutcomeOf(expire.Close(c, ask, expire.Credentials{SASL: exchange, Auths: l.digests()}))
	}
	l.endRequested(z, addr, outcome)
	return outcome != expire.NoAnswer
}

// EndOfDead ends the session of a process that is dead, as expire.Dead does, until the link is
// closed. failed is called with the first failure.
func (l *Link) EndOfDead(k sessionkey.Key, until time.Time, failed func(error)) (was bool, err error) {
	ctx, cancel := l.dials.Until(until)
	defer cancel()
	ask := wire.ConnectRequest{Timeout: int32(k.Timeout.Milliseconds()), SessionID: k.ID, Password: k.Password}
	open := func(ctx context.Context, server, at string) (net.Conn, expire.Credentials, error) {
		c, raw, err := l.dials.Once(ctx, server, at)
		if err != nil {
			return nil, expire.Credentials{}, err
		}
		exchange, err := l.startSASL(ctx, server)
		if err != nil {
			_ = raw.Close()
		}
		return c, expire.Credentials{SASL: exchange, Auths: l.digests()}, err
	}
	return expire.Dead(ctx, ask, expire.Ensemble{Servers: l.Addrs, Addresses: l.dials.Addresses, Open: open, Failed: failed})
}
