// Package expire ends ZooKeeper sessions: it attaches to one and closes it, in one write. Read
// expire.go first; dead.go ends the session of a dead process.
package expire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"time"

	"github.com/zklock/zklock/internal/sasl"
	"github.com/zklock/zklock/internal/wire"
)

// Credentials are the credentials that servers may require before they end a session.
type Credentials struct {
	SASL  sasl.Exchange // of this connection; nil for none
	Auths []wire.AuthRequest
}

// Close attaches to a session over a new connection, and closes it. Attaching is a sign of life for
// the session. So everything is sent in one write, without waiting for a response before the close
// is sent: a client whose responses are lost ends its session nevertheless, and does not keep it
// alive (F51). The connect request has last zxid 0, so that no server is too far behind to accept
// it. With SASL one write is impossible: the server's responses are needed first, because a server
// that requires SASL accepts no close before it.
//
// there reports that the server attached us. An error that is a wire.Code is the server's
// rejection. With ErrAnotherSession the session was not reached, and the one that the server opened
// is closed. After any other error the session may have ended, or not.
//
// Attaching also sets the session's timeout to the one in the request, as far as the server's
// limits allow. If the server then rejects the close, the session lives on with that timeout. So
// the request must not have a shorter timeout than the session's owner counts on.
func Close(conn io.ReadWriter, session wire.ConnectRequest, creds Credentials) (there bool, err error) {
	session.LastZxidSeen = 0
	connect, end := wire.Frame(session), []byte(nil)
	for _, a := range creds.Auths {
		end = append(end, wire.Frame(wire.RequestHeader{Xid: wire.XidAuth, Op: wire.OpAuth}, a)...)
	}
	end = append(end, wire.Frame(wire.RequestHeader{Xid: xidClose, Op: wire.OpClose})...)
	if creds.SASL == nil {
		connect, end = append(connect, end...), nil
	}
	if _, err := conn.Write(connect); err != nil {
		return false, err
	}
	var answer wire.ConnectResponse
	if err := read(conn, &answer); err != nil || answer.SessionID == 0 {
		return false, err
	}
	if creds.SASL != nil {
		xid := int32(xidClose)
		next := func() int32 { xid++; return xid }
		err := creds.SASL(sasl.Over(conn, next, func() ([]byte, error) { return wire.ReadFrame(conn, wire.MaxHandshake) }))
		if err != nil {
			return true, fmt.Errorf("SASL: %w", err)
		}
		if _, err := conn.Write(end); err != nil {
			return true, err
		}
	}
	there, err = ended(conn)
	if answer.SessionID != session.SessionID {
		return false, fmt.Errorf("the server opened session %#x instead: %w", uint64(answer.SessionID), ErrAnotherSession)
	}
	return there, err
}

// ErrAnotherSession is the error for a server that does not resume sessions, such as ClickHouse
// Keeper or a proxy.
var ErrAnotherSession = errors.New("it resumes no sessions, so nothing was ended; name a ZooKeeper server itself, or stop the session's client")

const xidClose = 1 // the only one on this connection

// ended reads the responses up to the response to the close.
func ended(conn io.Reader) (there bool, err error) {
	for {
		var h wire.ReplyHeader
		err := read(conn, &h)
		switch {
		case err != nil:
			return true, err
		case h.Err == wire.SessionExpired:
			return true, nil
		case h.Err != wire.OK:
			return true, h.Err
		case h.Xid == xidClose:
			return true, nil
		}
	}
}

// Outcome describes a server's response to Close, for output.
type Outcome string

// NoAnswer: the session may have ended, or not.
const NoAnswer Outcome = "no answer"

// OutcomeOf interprets the results of Close.
func OutcomeOf(there bool, err error) Outcome {
	var refusal wire.Code
	switch {
	case errors.Is(err, ErrAnotherSession):
		return "the server opened another session: it expires by itself"
	case errors.As(err, &refusal):
		return Outcome(fmt.Sprintf("rejected with code %d: it expires by itself", refusal))
	case err != nil:
		return NoAnswer
	case there:
		return hasEnded
	}
	return wasGone
}

// IsOver reports whether the session does not exist any more.
func (o Outcome) IsOver() bool { return o == hasEnded || o == wasGone }

const (
	hasEnded Outcome = "ended"
	wasGone  Outcome = "it was gone"
)

func read(conn io.Reader, into interface{ Decode(*wire.Decoder) }) error {
	body, err := wire.ReadFrame(conn, wire.MaxHandshake)
	if err != nil {
		return err
	}
	d := wire.NewDecoder(body)
	into.Decode(d)
	return d.Err()
}

// Timeout limits Session, provided that dial and credentials respect it.
const Timeout = 10 * time.Second

// FirstLimit is the time that a server has to respond to a first attempt. Further attempts have
// longer.
const FirstLimit = 250 * time.Millisecond

// Addresses returns the addresses of a server in random order.
func Addresses(ctx context.Context, server string) (addrs []string, err error) {
	host, port, err := net.SplitHostPort(server)
	if err != nil {
		return nil, err
	}
	ips, err := net.DefaultResolver.LookupHost(ctx, host)
	for _, i := range rand.Perm(len(ips)) {
		addrs = append(addrs, net.JoinHostPort(ips[i], port))
	}
	return addrs, err
}

// InTurn returns a dial for Session: each call begins with the next address of a server, because
// the previous one may lead to a server that accepts connections and does not serve.
func InTurn(
	lookup func(ctx context.Context) ([]string, error), dial func(at string, timeout time.Duration) (net.Conn, error),
) func(timeout time.Duration) (net.Conn, error) {
	var addrs []string
	return func(timeout time.Duration) (conn net.Conn, err error) {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if len(addrs) == 0 {
			if addrs, err = lookup(ctx); err != nil {
				return nil, err
			}
		}
		until, _ := ctx.Deadline()
		for left := len(addrs); left > 0; left-- {
			at := addrs[0]
			addrs = append(addrs[1:], at)
			if conn, err = dial(at, max(time.Until(until)/time.Duration(left), 1)); err == nil {
				return conn, nil
			}
		}
		return nil, err
	}
}

// Session ends a session on the ensemble of the dialled server: when it returns, the session's
// ephemeral nodes are deleted, and its client is notified when it next attaches. It returns false
// if the server did not have the session to begin with, or creates passwords in a way of its own.
// credentials is for servers that require them, and may be nil. It is called for each connection,
// with the time by which it has to return.
//
// A server requires a session's password before it closes it, and derives the password from the
// session's id (ZooKeeper 3.4 to at least 3.9). Our attaching cuts the client's connection, and the
// client may take the session back before the server confirms the close. The server then cuts our
// connection, and we try again.
//
// When several clients attach to a session and close it at the same time, ZooKeeper sometimes ends
// it and sends one of them no response, although the connection stays open. So an attempt ends
// after a short time without a response. The next attempt has twice that time, and the last one all
// the remaining time of Timeout, because some servers are slow. A session that no longer exists
// after an attempt without a response counts as one that we have ended.
//
// If the server rejects the close, the session lives on. We do not know the timeout that its owner
// counts on, so we request the longest one that the servers grant. With a shorter one, the session
// of an owner that is disconnected at that moment would expire before the owner's lease ends, and
// two clients would hold the lock. With a longer one, the session of an owner that never reconnects
// expires later.
func Session(
	dial func(timeout time.Duration) (net.Conn, error), session int64, credentials func(until time.Time) (Credentials, error),
) (was bool, err error) {
	if session == 0 {
		return false, errors.New("expire session 0: there is no such session")
	}
	failed := func(err error) (bool, error) {
		return false, fmt.Errorf("expire session %#x: %w", uint64(session), err)
	}
	request := wire.ConnectRequest{Timeout: math.MaxInt32, SessionID: session, Password: wire.SessionPassword(session), HasReadOnly: true}
	until, limit, pause := time.Now().Add(Timeout), FirstLimit, 10*time.Millisecond
	for {
		var creds Credentials
		if credentials != nil {
			if creds, err = credentials(until); err != nil {
				return failed(err)
			}
		}
		deadline := time.Now().Add(limit)
		if until.Sub(deadline) < 2*limit { // the next attempt would have less time than it needs
			deadline = until
		}
		var there, sent bool
		if there, sent, err = attempt(dial, deadline, request, creds); err == nil {
			return was || there, nil
		}
		was = was || sent
		late := !time.Now().Before(deadline)
		switch {
		case late && deadline.Equal(until), !late && !sent:
			return failed(err)
		case Refused(err), errors.Is(err, wire.ErrFrameLength):
			return failed(err)
		case late:
			limit *= 2
		case time.Until(until) < pause:
			return failed(err)
		default: // the server has closed the connection
			time.Sleep(pause)
			pause = min(2*pause, FirstLimit)
		}
	}
}

// attempt attaches to the session and closes it. sent reports whether there was a connection to do
// that on.
func attempt(
	dial func(time.Duration) (net.Conn, error), deadline time.Time, session wire.ConnectRequest, creds Credentials,
) (there, sent bool, err error) {
	conn, err := dial(max(time.Until(deadline), 1)) // 0 would be no limit
	if err != nil {
		return false, false, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(deadline)
	there, err = Close(conn, session, creds)
	return there, true, err
}

// Refused reports whether an error of Session means that the server responded and will not end the
// session: it requires other credentials, or it resumes no sessions.
func Refused(err error) bool {
	return errors.Is(err, wire.AuthFailed) || errors.Is(err, wire.AuthRequired) || errors.Is(err, wire.NoAuth) ||
		errors.Is(err, sasl.ErrFailed) || errors.Is(err, ErrAnotherSession)
}
