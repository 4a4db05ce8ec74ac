package dial

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/zklock/zklock/internal/certs"
	"github.com/zklock/zklock/internal/sasl"
)

// Reports about rejected certificates and credentials. A server that rejects ours is reachable, and
// so is a server whose certificate we reject: that is no outage. It ends when a certificate or a
// credential is renewed, or the trusted authorities change, and then the next dial succeeds.

// ErrCertificate: a server rejected our certificate, or we rejected its.
var ErrCertificate = errors.New("certificate rejected")

var (
	errTheirs = fmt.Errorf("%w: this client rejects the server's", ErrCertificate)
	errOurs   = fmt.Errorf("%w: the server rejects this client's", ErrCertificate)
)

// alerts are the TLS alerts that a server sends about a certificate that it rejects. Java servers
// do not always send the same ones.
var alerts = []tls.AlertError{
	42,  // bad certificate
	43,  // unsupported certificate
	44,  // revoked
	45,  // expired
	46,  // unknown
	48,  // of an unknown authority
	49,  // access denied
	113, // bad certificate status
	116, // certificate required
}

// isRefusal reports whether the error is such an alert. The package tls exports the text of its
// alerts, but not their type.
func isRefusal(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error" &&
		slices.ContainsFunc(alerts, func(a tls.AlertError) bool { return op.Err.Error() == a.Error() })
}

func refusedOurs(err error, ours string) error {
	if ours != "" {
		ours = " (" + ours + ")"
	}
	return fmt.Errorf("TLS: %w%s: %w", errOurs, ours, err)
}

func (d *Dialer) sayFiles(news certs.News) {
	switch {
	case d.how.Log == nil:
	case news.Renewed:
		d.how.Log.Info("zklock: read the certificates anew", "certificate", news.Cert)
	case news.Err != nil && news.First:
		d.how.Log.Error("zklock: the files of the certificates cannot be used; the last good ones go on", "err", news.Err, "certificate", news.Cert)
	}
}

// sayRefusedLocked logs a rejection, once until a server answers a request.
func (d *Dialer) sayRefusedLocked(addr string, err error) {
	for _, why := range []error{errTheirs, errOurs, sasl.ErrFailed} {
		if d.how.Log == nil || !errors.Is(err, why) || d.mu.said[addr] == why {
			continue
		}
		d.mu.said[addr] = why
		if why == sasl.ErrFailed {
			d.how.Log.Error("zklock: the server rejected the credentials", "server", addr, "err", err)
		} else {
			d.how.Log.Error("zklock: no connection: a certificate is rejected; the Session keeps trying", "server", addr, "err", err)
		}
	}
}

// All reports whether each server that was tried failed for one of these reasons.
func (d *Dialer) All(reasons ...error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, err := range d.mu.tried {
		if !slices.ContainsFunc(reasons, func(r error) bool { return errors.Is(err, r) }) {
			return false
		}
	}
	return len(d.mu.tried) > 0
}

// Refusal returns the reason if each server that was tried rejects our certificate (or we reject
// the server's), or our credentials: then the servers are reachable. Otherwise it returns nil.
func (d *Dialer) Refusal() error {
	for _, r := range []error{ErrCertificate, sasl.ErrFailed} {
		if d.All(r) {
			return r
		}
	}
	return nil
}

// Unreached adds to an error the result of the last try at each server, and the Refusal if there is
// one.
func (d *Dialer) Unreached(err error) error {
	tried, refusal := d.Tried(), d.Refusal()
	switch {
	case tried == "":
		return err
	case refusal != nil:
		return unreached{fmt.Errorf("%w: %w; tried %s", err, refusal, tried)}
	}
	return unreached{fmt.Errorf("%w; tried %s", err, tried)}
}

type unreached struct{ error }

func (u unreached) Unwrap() error { return u.error }

// IsUnreached reports whether an error is one of Unreached.
func IsUnreached(err error) bool { return errors.As(err, new(unreached)) }
