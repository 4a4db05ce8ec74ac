package dial

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// Errors about a server that does not speak our protocol.

// maxGreeting is longer than any response to a connect request: those have some 40 bytes.
const maxGreeting = 4096

// greetingError explains a wrong first response of a server: first contains the bytes received, err
// is the error after them. It returns nil if the response may still turn out right, or if we closed
// the connection ourselves. err stays visible to errors.Is and errors.As.
//
// A server with TLS takes our connect request for a broken TLS record: it responds with an alert,
// or just closes, as ZooKeeper does. But ZooKeeper also closes without a response when it has no
// quorum, has too many connections, or has not yet applied all that we have seen.
func greetingError(first []byte, err error, overTLS bool, ours string) error {
	const alert, handshake, tlsMajor = 0x15, 0x16, 3
	var timeout net.Error
	switch {
	case len(first) >= 2 && (first[0] == alert || first[0] == handshake) && first[1] == tlsMajor:
		return errors.New("connected, but the server speaks TLS, and this client was not told to")
	case len(first) >= 4 && binary.BigEndian.Uint32(first) > maxGreeting:
		return fmt.Errorf("connected, but it is not a ZooKeeper server: its answer begins with %q", first)
	case err == nil, errors.Is(err, net.ErrClosed):
		return nil
	case overTLS && isRefusal(err): // with TLS 1.3 our handshake is complete before the server has seen our certificate
		return refusedOurs(err, ours)
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("connected, but the server did not answer the handshake (%w): no quorum, or not a ZooKeeper server", err)
	default:
		return hungUp(err, overTLS)
	}
}

// hungUp lists possible reasons why a server closed the connection without a response.
func hungUp(err error, overTLS bool) error {
	or := "expects TLS"
	if overTLS {
		or = "does not take our certificate"
	}
	return fmt.Errorf("connected, but the server closed the connection without an answer (%w): it does not serve (no quorum?), has as many connections of this host as it takes (maxClientCnxns), has older data than this client has seen (restored, or emptied), or %s", err, or)
}

// tlsError explains a failed TLS handshake. A server without TLS takes our first record for a frame
// of 369 MB and closes.
func tlsError(err error, ours string) error {
	var record tls.RecordHeaderError
	var op *net.OpError
	var theirs *tls.CertificateVerificationError
	switch {
	case errors.As(err, &theirs):
		return fmt.Errorf("TLS: %w: %w", errTheirs, err)
	case isRefusal(err):
		return refusedOurs(err, ours)
	case errors.As(err, &record):
		return fmt.Errorf("TLS: the server does not speak it: its answer begins with %q", record.RecordHeader[:])
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &op) && !op.Timeout() && (op.Op == "read" || op.Op == "write"):
		return fmt.Errorf("TLS: the server closed the connection at the handshake (%w): does it expect connections without TLS, or reject ours?", err)
	}
	return fmt.Errorf("TLS: %w", err)
}

// greeting is a connection that checks the first bytes from the server. If they are wrong, tell is
// called once with the greetingError, and the reader gets that error instead of the bytes. The
// ZooKeeper client would take the beginning of another protocol for a length, and allocate a frame
// of hundreds of megabytes.
type greeting struct {
	net.Conn
	overTLS bool
	ours    string // the name of our certificate that the server has seen
	tell    func(error)

	first []byte // the received part of the first four bytes; owned by the goroutine that reads
	done  bool
}

// Read returns the server's bytes, if they may be ZooKeeper's response.
func (g *greeting) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	if g.done {
		return n, err
	}
	g.first = append(g.first, p[:min(n, 4-len(g.first))]...)
	g.done = len(g.first) == 4 || err != nil
	if strange := greetingError(g.first, err, g.overTLS, g.ours); strange != nil {
		g.done = true
		g.tell(strange)
		return 0, strange
	}
	return n, err
}
