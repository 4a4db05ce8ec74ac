package command

// The end of a killed zklock's ZooKeeper session by another process, the guardian.

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
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

	Report *killedRun    // for the metrics file; nil for none
	Delay  time.Duration // the lock-delay, which begins with the end of the session; 0 for none
}

func (c *connection) ending(lock string) *ending {
	return &ending{Key: c.key(), Creds: c.creds(), TLS: c.forGuardian(), Lock: lock}
}

// will returns the data for the guardian, nil while there is no session and no file to write.
func (e *ending) will() []byte {
	if e.ID == 0 && e.Report == nil {
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
	if e.Report != nil {
		defer e.Report.end(guardianStderr()) // after the session: a file system may hang
	}
	if e.ID == 0 { // zklock had lost its session
		return
	}
	if err := e.end(since); err != nil {
		fmt.Fprintf(guardianStderr(), "zklock: %s: its ZooKeeper session was not ended: %v; others get the lock when it expires, within %v\n",
			e.Lock, err, e.Timeout)
		return
	}
	after := "the lock is free"
	if e.Delay > 0 {
		after = fmt.Sprintf("others get the lock after the lock-delay of %v", e.Delay)
	}
	fmt.Fprintf(guardianStderr(), "zklock: %s: ended its ZooKeeper session: %s\n", e.Lock, after)
}

// end ends the session. It gives up one and a half session timeouts after the session's own client
// died: by then the session has expired. (By default a tick is half of the shortest timeout.)
func (e *ending) end(gone supervise.Moment) error {
	_, err := e.endKnown(gone)
	return err
}

// endKnown is end, and also reports whether the servers had the session.
func (e *ending) endKnown(gone supervise.Moment) (was bool, err error) {
	creds, err := e.Creds.open()
	if err != nil {
		return false, err
	}
	var base *tls.Config
	var files *certs.Files
	if e.TLS != nil {
		if base, files, err = e.TLS.open(); err != nil {
			return false, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), gone.Add(e.Timeout+e.Timeout/2).Sub(supervise.Now()))
	defer cancel()
	session := jute.ConnectRequest{Timeout: int32(e.Timeout.Milliseconds()), SessionID: e.ID, Password: e.Password}
	open := func(ctx context.Context, server, at string) (conn net.Conn, shown expire.Credentials, err error) {
		if conn, err = new(net.Dialer).DialContext(ctx, "tcp", at); err != nil {
			return nil, shown, err
		}
		if config := configFor(base, files, server); config != nil {
			conn = tls.Client(conn, config)
		}
		if shown, err = creds.forOne(ctx, server); err != nil {
			_ = conn.Close()
		}
		return conn, shown, err
	}
	return expire.Dead(ctx, session, expire.Ensemble{Servers: e.Servers, Addresses: expire.Addresses, Open: open})
}
