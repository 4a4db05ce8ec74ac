package dial

// These tests attack dialerror.go: the error names the protocol of a server that does not speak
// ours.

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/clock"
)

// What the first bytes of an answer say, or the end of the connection in their place.
func TestGreetingError(t *testing.T) {
	connectResponse := []byte{0, 0, 0, 37}
	for _, tt := range []struct {
		name    string
		first   []byte
		err     error
		overTLS bool
		says    []string // none: it may be ZooKeeper's answer yet
	}{
		{"an answer", connectResponse, nil, false, nil},
		{"an answer over TLS", connectResponse, nil, true, nil},
		{"an answer in pieces", connectResponse[:1], nil, false, nil},
		{"nothing yet", nil, nil, false, nil},
		{"the longest", []byte{0, 0, 0x10, 0}, nil, false, nil},
		{"an alert of TLS", []byte{0x15, 3, 3, 0}, nil, false, []string{"speaks TLS"}},
		{"the first piece of it", []byte{0x15, 3}, nil, false, []string{"speaks TLS"}},
		{"and nothing after it", []byte{0x15, 3, 1}, io.EOF, false, []string{"speaks TLS"}},
		{"a handshake record", []byte{0x16, 3, 3, 1}, nil, false, []string{"speaks TLS"}},
		{"HTTP", []byte("HTTP"), nil, false, []string{"not a ZooKeeper server", `"HTTP"`}},
		{"SSH over TLS", []byte("SSH-"), nil, true, []string{"not a ZooKeeper server", `"SSH-"`}},
		{"a negative length", []byte{0xff, 0xff, 0xff, 0xff}, nil, false, []string{"not a ZooKeeper server"}},
		{"closed", nil, io.EOF, false, []string{"closed the connection without an answer", "EOF", "expects TLS", "quorum", "older data"}},
		{"closed over TLS", nil, io.EOF, true, []string{"closed the connection without an answer", "certificate"}},
		{"the alert after the handshake", nil, &net.OpError{Op: "remote error", Err: tls.AlertError(116)}, true, []string{"certificate required"}},
		{"cut within the answer", connectResponse[:2], io.ErrUnexpectedEOF, false, []string{"without an answer"}},
		{"we closed", nil, &net.OpError{Op: "read", Err: net.ErrClosed}, false, nil},
		{"silent", nil, &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, false, []string{"did not answer the handshake", "quorum"}},
		{"silent over TLS", nil, &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, true, []string{"did not answer the handshake"}},
	} {
		err := greetingError(tt.first, tt.err, tt.overTLS, "")
		if tt.says == nil {
			require.NoError(t, err, tt.name)
			continue
		}
		for _, s := range tt.says {
			require.ErrorContains(t, err, s, tt.name)
		}
		if tt.overTLS {
			require.NotContains(t, err.Error(), "expects TLS", tt.name)
		}
		if tt.err != nil && len(tt.first) == 0 {
			require.ErrorIs(t, err, tt.err, tt.name)
		}
	}
}

// A server that has too many connections closes each at once, mostly after the dial has returned,
// and sometimes before: the error is the same.
func TestDial_ClosedBeforeItReturns(t *testing.T) {
	for _, overTLS := range []bool{false, true} {
		for _, why := range []error{syscall.ECONNRESET, syscall.EPIPE} {
			how := Config{Dialer: func(string, string, time.Duration) (net.Conn, error) {
				// Another of the server's addresses may have failed in another way.
				return nil, errors.Join(&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", why)}, net.ErrClosed)
			}}
			if overTLS {
				how.TLS = &tls.Config{}
			}
			d := New(how, clock.New(func() time.Duration { return 0 }), []string{"zk1:2181"}, nil)
			defer d.Close()
			_, _, err := d.Dial(To{Addr: "zk1:2181", Limit: time.Hour, Deadline: time.Now().Add(time.Hour)})
			require.ErrorIs(t, err, why)
			require.ErrorContains(t, err, "connected, but the server closed the connection without an answer")
			require.ErrorContains(t, err, "maxClientCnxns")
		}
	}
}
