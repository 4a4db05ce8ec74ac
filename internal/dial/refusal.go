package dial

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/zklock/zklock/internal/certs"
)

// What to say about certificates. A server that refuses ours is there, and so is one whose certificate we refuse: that is no outage. It ends
// when somebody renews a certificate, or changes what is trusted, and then the next dial succeeds.

// ErrCertificate: a server refused our certificate, or we refused its.
var ErrCertificate = errors.New("certificate refused")

var (
	errTheirs = fmt.Errorf("%w: this client refuses the server's", ErrCertificate)
	errOurs   = fmt.Errorf("%w: the server refuses this client's", ErrCertificate)
)

// alerts are what a server sends of a certificate that it does not take. Java's send some of them where others send another.
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

// isRefusal says whether the error is such an alert. The package tls keeps the type of its alerts to itself, but not the text.
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

// sayFiles logs what has become of the files of certificates.
func (d *Dialer) sayFiles(news certs.News) {
	switch {
	case d.how.Log == nil:
	case news.Renewed:
		d.how.Log.Info("zklock: read the certificates anew", "certificate", news.Cert)
	case news.Err != nil && news.First:
		d.how.Log.Error("zklock: the files of the certificates cannot be used; the last good ones go on", "err", news.Err, "certificate", news.Cert)
	}
}

// sayRefusedLocked logs a refused certificate, once until a server accepts the session.
func (d *Dialer) sayRefusedLocked(addr string, err error) {
	for _, whose := range []error{errTheirs, errOurs} {
		if d.how.Log != nil && errors.Is(err, whose) && d.mu.said[addr] != whose {
			d.mu.said[addr] = whose
			d.how.Log.Error("zklock: no connection: a certificate is refused; the Session tries on", "server", addr, "err", err)
		}
	}
}

// Refused says whether certificates are all that keeps us from the servers that were tried.
func (d *Dialer) Refused() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, err := range d.mu.tried {
		if !errors.Is(err, ErrCertificate) {
			return false
		}
	}
	return len(d.mu.tried) > 0
}

// Unreached adds to an error what came of the last try at each server, and ErrCertificate if it was that for all.
func (d *Dialer) Unreached(err error) error {
	tried := d.Tried()
	switch {
	case tried == "":
		return err
	case d.Refused():
		return fmt.Errorf("%w: %w; tried %s", err, ErrCertificate, tried)
	}
	return fmt.Errorf("%w; tried %s", err, tried)
}
