//go:build linux || darwin

package crash

// These tests need a real ZooKeeper: it accepts only clients with credentials.

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/testca"
	"github.com/zklock/zklock/internal/zkserver"
)

// F58: servers that require credentials end the session, because the request has them.
func TestReal_CredentialsRequired(t *testing.T) {
	if os.Getenv("ZKLOCK_TEST_REAL") != "1" {
		t.Skip("zktest does not require credentials; ZKLOCK_TEST_REAL=1 takes a real ZooKeeper")
	}
	for name, start := range map[string]func(*testing.T) role{"digest": digestServer, "SASL": saslServer, "TLS": tlsServer} {
		t.Run(name, func(t *testing.T) {
			r := start(t)
			s := r.start(t)
			s.await("holds")
			s.kill()
			now := r.start(t).await("holds")
			require.Equal(t, 1, now.Ended)
			require.Less(t, now.After, r.Timeout/4)
			t.Logf("%v from Connect to the grant", now.After)
		})
	}
}

// digestServer starts a server that rejects requests without a digest, and returns a role for it.
func digestServer(t *testing.T) role {
	t.Helper()
	srv := zkserver.Single(t, zkserver.Property("zookeeper.enforce.auth.enabled", "true"), zkserver.Property("zookeeper.enforce.auth.schemes", "digest"))
	r := server{addr: srv.Addr()}.role(t)
	r.Digest = "secret"
	return r
}

func saslServer(t *testing.T) role {
	t.Helper()
	srv := zkserver.Single(t, zkserver.SASLUsers(map[string]string{"boss": "secret"}), zkserver.SASLRequired())
	r := server{addr: srv.Addr()}.role(t)
	r.SASL = "secret"
	return r
}

// tlsServer starts a server with a port that takes TLS only, from clients with a certificate.
func tlsServer(t *testing.T) role {
	t.Helper()
	port, err := zkserver.FreePort()
	require.NoError(t, err)
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	authority, dir := testca.New(t, "authority"), t.TempDir()
	own, client := authority.Issue("zk.test", 24*time.Hour), authority.Issue("client.test", 24*time.Hour)
	for name, content := range map[string][]byte{
		"ca.pem": authority.Own().PEM, "server.pem": slices.Concat(own.KeyPEM, own.PEM), "cert.pem": client.PEM, "key.pem": client.KeyPEM,
	} {
		testca.Write(t, filepath.Join(dir, name), content)
	}
	zkserver.Single(t, zkserver.TLS(addr, filepath.Join(dir, "server.pem"), filepath.Join(dir, "ca.pem")))
	r := server{addr: addr}.role(t)
	r.TLS = []string{filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	return r
}
