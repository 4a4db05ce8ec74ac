package zklock

// These tests attack options.go: defaults, connection strings, paths, rejections.

import (
	"context"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/link"
	"github.com/zklock/zklock/sasl"
)

func TestParseServers(t *testing.T) {
	for _, tt := range []struct {
		in     string
		addrs  []string
		chroot string
	}{
		{"zk1:2181", []string{"zk1:2181"}, ""},
		{"zk1", []string{"zk1:2181"}, ""}, // the default port
		{"zk1:2182,zk2,zk3:2183", []string{"zk1:2182", "zk2:2181", "zk3:2183"}, ""},
		{" zk1 , zk2:1 ,", []string{"zk1:2181", "zk2:1"}, ""},
		{"zk1:2181/", []string{"zk1:2181"}, ""},
		{"zk1:2181/app", []string{"zk1:2181"}, "/app"},
		{"zk1:2181/app/", []string{"zk1:2181"}, "/app"},
		{"zk1,zk2:2182/app/locks", []string{"zk1:2181", "zk2:2182"}, "/app/locks"}, // of all servers
		{"192.0.2.7", []string{"192.0.2.7:2181"}, ""},
		{"[::1]:2182", []string{"[::1]:2182"}, ""},
		{"[2001:db8::7]", []string{"[2001:db8::7]:2181"}, ""},
		{"[::1],[::1]:2183/x", []string{"[::1]:2181", "[::1]:2183"}, "/x"},
		{"zk1:65535", []string{"zk1:65535"}, ""},
		{"zk1/app@prod", []string{"zk1:2181"}, "/app@prod"},
		{"zk1/app:v2/x", []string{"zk1:2181"}, "/app:v2/x"},
	} {
		t.Run(tt.in, func(t *testing.T) {
			addrs, chroot, err := parseServers(tt.in)
			require.NoError(t, err)
			require.Equal(t, tt.addrs, addrs)
			require.Equal(t, tt.chroot, chroot)
		})
	}
}

// The error for a connection string that cannot work names the mistake.
func TestParseServers_Malformed(t *testing.T) {
	for _, tt := range []struct{ in, says string }{
		{"", "no server"},
		{" , ,", "no server"},
		{"/app", "no server"},
		{"zk1:", `port ""`},
		{"zk1:abc", `port "abc"`},
		{"zk1:0", `port "0"`},
		{"zk1:65536", `port "65536"`},
		{"zk1:-1", `port "-1"`},
		{":2181", "no host"},
		{"[]:2181", "no host"},
		{"[::1", "bracket is not closed"},
		{"[::1]2181", "expected a colon"},
		{"[::1]:", `port ""`},
		{"::1]:2181", "a bracket has no counterpart"},
		{"zk1,::1", "put an IPv6 address in brackets"},
		{"fd00::10:2181", "put an IPv6 address in brackets"}, // Java: host fd00::10, port 2181
		{"::1:2181", "put an IPv6 address in brackets"},
		{"zk1:+1", `port "+1"`},
		{"zk1:01", `port "01"`},
		{"zk 1:2181", "white space"},
		{"zk1:2181 zk2:2181", ""}, // blanks are no commas
		{"zk1:2181//app", "chroot"},
		{"zk1:2181/app//", "chroot"},
		{"zk1:2181/a/../b", "chroot"},
		{"zk1,zk2/a\x00b", "chroot"},
		{"zk1:2181/app,zk2:2181/app", "put the chroot once, at the end"}, // as it is written for Kafka
		{"zk1:2181/app,zk2:2181", "put the chroot once, at the end"},
		{"zk1/app,zk2/app", "put the chroot once, at the end"},
		{"zk1:2181/,zk2:2181/", "put the chroot once, at the end"},
		{"zk1:2181/app:2181", "put the chroot once, at the end"},
		{"zk1/zk2:2181/app", "put the chroot once, at the end"},
		{"zk1:2181,/app", "there is a comma before the chroot: is a server missing?"},
		{"zk1, /app", "there is a comma before the chroot"},
		{"zk1:2181/zookeeper", "chroot: path \"/zookeeper\" is at or below /zookeeper"},
		{"zk1:2181/zookeeper/app", "chroot: path \"/zookeeper/app\" is at or below /zookeeper"},
		{"zk1:2181;zk2:2181", "separate the servers with commas"},
		{"zk1:2181/app;zk2:2181/app", "separate the servers with commas"},
		{"alice:pw@zk1:2181", "WithDigest"},
		{"zk1,alice:pw@zk2", "WithDigest"},
		{"zk://alice:pw@zk1:2181/app", "WithDigest"},
		{"alice:p/w@zk1:2181", "WithDigest"},
	} {
		t.Run(tt.in, func(t *testing.T) {
			_, _, err := parseServers(tt.in)
			require.ErrorContains(t, err, tt.says)
		})
	}
}

// R20: NewMutex rejects paths that the servers would reject, before it sends anything.
func TestNewMutex_BadPaths(t *testing.T) {
	s := &Session{link: &link.Link{}, sessionState: new(sessionState)}
	for _, tt := range []struct{ path, says string }{
		{"", "empty"},
		{"locks", "relative"},
		{"locks/orders", "relative"},
		{"./locks", "relative"},
		{"/", "root of the tree"},
		{"/locks/", "ends in a slash"},
		{"//", "ends in a slash"},
		{"//locks", "empty part"},
		{"/locks//orders", "empty part"},
		{"/locks/./orders", "relative part"},
		{"/locks/../orders", "relative part"},
		{"/locks/..", "relative part"},
		{"/.", "relative part"},
		{"/zookeeper", "is at or below /zookeeper, where the servers keep their own: give another"},
		{"/zookeeper/locks", "is at or below /zookeeper"},
		{"/locks/\x00", "U+0000"},
		{"/locks/a\nb", "U+000A"},
		{"/locks/\x7f", "U+007F"},
		{"/locks/\u009f", "U+009F"},
		{"/locks/\ue000", "U+E000"},
		{"/locks/\ufff0", "U+FFF0"},
		{"/locks/\xff", "U+FFFD"}, // not UTF-8
		{"/locks/🔒", "U+1F512"},   // two surrogates to ZooKeeper, which refuses them
	} {
		t.Run(strconv.Quote(tt.path), func(t *testing.T) {
			_, err := NewMutex(s, tt.path)
			require.ErrorContains(t, err, tt.says)
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, tt.path, e.Path)
		})
	}
	for _, path := range []string{"/a", "/locks/orders", "/locks/...", "/locks/.hidden", "/locks/a b", "/locks/ordre-é", "/locks/锁", "/_c_x/lock-0000000001", "/zookeeper2", "/zookeepers/a", "/locks/zookeeper"} {
		m, err := NewMutex(s, path)
		require.NoError(t, err, path)
		require.Equal(t, path, m.Path())
	}
}

// R26: below a chroot, paths are absolute on the wire and as given for the caller.
func TestNewMutex_BelowAChroot(t *testing.T) {
	m, err := NewMutex(&Session{link: &link.Link{}, chroot: "/app", sessionState: new(sessionState)}, "/locks/orders")
	require.NoError(t, err)
	require.Equal(t, "/locks/orders", m.Path())
	require.Equal(t, "/app/locks/orders", m.root.Path())
}

func TestNewMutex_BadOptions(t *testing.T) {
	for _, tt := range []struct {
		opt  MutexOption
		says string
	}{
		{WithACL(nil), "ACL is empty"},
		{WithData(make([]byte, 512<<10+1)), "512 KiB"},
		{WithRevocation(nil), "give the function"},
		{nil, "nil option"},
	} {
		_, err := NewMutex(&Session{link: &link.Link{}, sessionState: new(sessionState)}, "/locks/a", tt.opt)
		require.ErrorContains(t, err, tt.says)
	}
	_, err := NewMutex(nil, "/locks/a")
	require.ErrorContains(t, err, "nil or zero Session")
}

func TestMutexOptions(t *testing.T) {
	o := newLockOptions[LockOption](nil)
	require.Equal(t, wireACL(zk.WorldACL(zk.PermAll)), o.acl)
	require.False(t, o.container)
	host, _ := os.Hostname()
	require.Equal(t, host+":"+strconv.Itoa(os.Getpid()), string(o.data), "for who reads the queue")

	acl, data := zk.WorldACL(zk.PermRead), []byte("x")
	o = newLockOptions([]LockOption{WithACL(acl), WithData(data), WithContainer()})
	acl[0].Perms, data[0] = 0, 'y'
	require.EqualValues(t, zk.PermRead, o.acl[0].Perms, "the caller's slice is the caller's")
	require.Equal(t, "x", string(o.data))
	require.True(t, o.container)
}

func TestSessionOptions(t *testing.T) {
	o := newSessionOptions(nil)
	require.NoError(t, o.check())
	require.Equal(t, 30*time.Second, o.timeout)
	require.Equal(t, QuorumLease(4*time.Second), o.mode)
	require.Equal(t, 10_000, o.maxLockNodes)
	require.Equal(t, 1_048_575, o.juteMaxBuffer, "the servers' default")

	o = newSessionOptions([]Option{WithSessionTimeout(12 * time.Second), WithDigest("user", "sec:ret")})
	require.Equal(t, "user:sec:ret", string(o.digests[0].Reveal()))
	require.NoError(t, o.check())
}

// Connect rejects options that cannot work before it dials a server.
func TestConnect_BadConfiguration(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // for a configuration that should not get so far
	defer cancel()
	for _, tt := range []struct {
		name string
		opts []Option
		says []string
		is   error
	}{
		{"no room", []Option{WithSessionTimeout(5 * time.Second)}, []string{": 5s", "quorum (leader ping 4s)", "at least 7.5s", "SingleServerLease()"}, ErrSessionTimeoutTooShort},
		{"a heartbeat too far apart", []Option{WithHeartbeat(9 * time.Second)}, []string{": 30s", "heartbeat 9s", "WithHeartbeat"}, ErrSessionTimeoutTooShort},
		{"a heartbeat too often", []Option{WithHeartbeat(249 * time.Millisecond)}, []string{"WithHeartbeat(249ms): give at least 250ms"}, nil},
		{"a heartbeat in a hundred years", []Option{WithHeartbeat(876000 * time.Hour)}, []string{"WithHeartbeat(876000h0m0s): give at least 250ms and at most 24h"}, nil},
		{"no heartbeat", []Option{WithHeartbeat(0)}, []string{"WithHeartbeat(0s)"}, nil},
		{"too short", []Option{WithSessionTimeout(time.Millisecond)}, []string{"1ms is too short"}, nil},
		{"negative", []Option{WithSessionTimeout(-time.Second)}, []string{"-1s is too short"}, nil},
		{"R39: too long for the protocol", []Option{WithSessionTimeout(25 * 24 * time.Hour)}, []string{"576h"}, nil},
		{"no timeout", []Option{WithSessionTimeout(0)}, []string{"0s is too short"}, nil},
		{"no TLS file", []Option{WithTLSFiles("", "", "")}, []string{"WithTLSFiles", "no file is named"}, nil},
		{"a certificate without its key", []Option{WithTLSFiles("ca", "cert", "")}, []string{"WithTLSFiles", "go together"}, nil},
		{"a TLS file that is not there", []Option{WithTLSFiles("/nowhere/ca.pem", "", "")}, []string{"WithTLSFiles", "/nowhere/ca.pem"}, nil},
		{"nil TLS is no plain text", []Option{WithTLS(nil)}, []string{"WithTLS(nil)", "&tls.Config{}"}, nil},
		{"no dialer", []Option{WithDialer(nil)}, []string{"WithDialer(nil)"}, nil},
		{"no lock nodes", []Option{WithMaxLockNodes(0)}, []string{"at least 1"}, nil},
		{"no buffer", []Option{WithJuteMaxBuffer(0)}, []string{"WithJuteMaxBuffer(0): give what the servers have, in bytes"}, nil},
		{"a lease of zero", []Option{WithLease(LeaseMode{})}, []string{"QuorumLease(0)"}, ErrSessionTimeoutTooShort},
		{"no option", []Option{nil}, []string{"nil Option"}, nil},
		{"no logger", []Option{WithLogger(nil)}, []string{"slog.DiscardHandler"}, nil},
		{"no mechanism", []Option{WithSASL(nil)}, []string{"WithSASL(nil): give sasl.DigestMD5(user, password)"}, nil},
		{"SASL: no password", []Option{WithSASL(sasl.DigestMD5("alice", ""))}, []string{"DigestMD5: give a user and a password"}, nil},
		{"SASL: no user", []Option{WithSASL(sasl.DigestMD5("", "alice"))}, []string{"DigestMD5: give a user and a password"}, nil},
		{"SASL: no UTF-8", []Option{WithSASL(sasl.DigestMD5("alice", "\xff"))}, []string{"DigestMD5: give a user and a password in UTF-8"}, nil},
		{"digest: no password", []Option{WithDigest("alice", "")}, []string{"WithDigest: give a user"}, nil},
		{"digest: no user", []Option{WithDigest("", "alice")}, []string{"WithDigest: give a user"}, nil},
		{"digest: both in one", []Option{WithDigest("alice:pw", "pw")}, []string{"WithDigest: give a user"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Connect(ctx, "127.0.0.1:1", append([]Option{WithLogger(slog.New(slog.DiscardHandler))}, tt.opts...)...)
			for _, s := range tt.says {
				require.ErrorContains(t, err, s)
			}
			if tt.is != nil {
				require.ErrorIs(t, err, tt.is)
			}
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, "connect", e.Op)
			if strings.Contains(err.Error(), "alice") {
				t.Error("credentials have no place in an error")
			}
		})
	}
	_, err := Connect(ctx, "zk1:none")
	require.ErrorContains(t, err, "zk1:none")
	var none context.Context
	_, err = Connect(none, "127.0.0.1:1")
	require.ErrorContains(t, err, "nil context")
}

// The lease modes of the API are the modes of package lease.
func TestLeaseMode(t *testing.T) {
	require.Equal(t, QuorumLease(4*time.Second), QuorumLease(0))
	require.Equal(t, "quorum (leader ping 4s)", QuorumLease(0).String())
	require.Equal(t, "single server", SingleServerLease().String())
	require.Greater(t, SingleServerLease().Margin(30*time.Second), QuorumLease(0).Margin(30*time.Second))
	require.ErrorIs(t, (&sessionOptions{timeout: time.Second, maxLockNodes: 1, logger: slog.Default(), mode: QuorumLease(0)}).check(), ErrSessionTimeoutTooShort)
}
