package dial

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// What to say about a server that does not speak our protocol.

// maxGreeting is longer than any answer to a connect request: those have some 40 bytes.
const maxGreeting = 4096

// greetingError says what is wrong with a server's first answer: first is what has come of it, err the error after that. It
// returns nil if the answer may still turn out right, or if we closed the connection ourselves. err stays visible to
// errors.Is and errors.As.
//
// A server with TLS takes our connect request for a broken TLS record: it answers with an alert, or just closes, as
// ZooKeeper does. But ZooKeeper also closes without a word when it has no quorum, has too many connections, or has
// seen less than we have.
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
	case overTLS && isRefusal(err): // with TLS 1.3 we are done with the handshake before the server has seen our certificate
		return refusedOurs(err, ours)
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("connected, but the server did not answer the handshake (%w): no quorum, or not a ZooKeeper server", err)
	default:
		return hungUp(err, overTLS)
	}
}

// hungUp says what it may mean that a server has closed the connection, and not answered.
func hungUp(err error, overTLS bool) error {
	or := "expects TLS"
	if overTLS {
		or = "does not take our certificate"
	}
	return fmt.Errorf("connected, but the server closed the connection without an answer (%w): it does not serve (no quorum?), has as many connections of this host as it takes (maxClientCnxns), or %s", err, or)
}

// tlsError says what a failed TLS handshake means. A server without TLS takes our first record for a frame of 369 MB and
// closes.
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
		return fmt.Errorf("TLS: the server closed the connection at the handshake (%w): does it expect connections without TLS, or refuse ours?", err)
	}
	return fmt.Errorf("TLS: %w", err)
}

// greeting is a connection that looks at the first bytes from the server. If they are wrong, tell hears the greetingError,
// once, and the reader gets it in place of the bytes. The ZooKeeper client would take the beginning of another protocol for
// a length, and make room for a frame of hundreds of megabytes.
type greeting struct {
	net.Conn
	overTLS bool
	ours    string // which certificate of ours the server has seen
	tell    func(error)

	first []byte // what has come of the first four bytes; for the one goroutine that reads
	done  bool
}

// Read passes on what the server says, if it may be ZooKeeper's answer.
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
