package zktest_test

// Attacks WithTLS: which clients the server accepts, and that words and restarts work over TLS as
// they do without.

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/testca"
	. "github.com/zklock/zklock/zktest"
)

func TestTLS_TakesTheClientsThatItTrusts(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		ours, theirs := testca.New(t, "zk.test"), testca.New(t, "other.test")
		srv := Start(t, WithNetwork(n), WithConfig("4lw.commands.whitelist=ruok"), WithTLS(&tls.Config{
			Certificates: []tls.Certificate{ours.Own().Pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ours.Pool(),
		}))
		over := func(by *testca.Authority) zk.Dialer {
			return func(network, addr string, timeout time.Duration) (net.Conn, error) {
				nc, err := n.Dial(network, addr, timeout)
				if err != nil {
					return nil, err
				}
				return tls.Client(nc, &tls.Config{ServerName: "zk.test", RootCAs: ours.Pool(), Certificates: []tls.Certificate{by.Issue("client", time.Hour).Pair}}), nil
			}
		}
		word := func(by *testca.Authority) (string, error) {
			nc, err := over(by)("tcp", srv.Addr(), time.Second)
			require.NoError(t, err)
			defer nc.Close()
			if _, err := io.WriteString(nc, "ruok"); err != nil {
				return "", err
			}
			answer, err := io.ReadAll(nc)
			return string(answer), err
		}

		conn, events := connectEvents(t, srv.Addr(), 10*time.Second, func(c *zk.Conn) { zk.WithDialer(over(ours))(c) })
		require.NoError(t, create(conn, "/a"))
		answer, err := word(ours)
		require.NoError(t, err)
		require.Equal(t, "imok", answer)
		_, err = word(theirs)
		require.Error(t, err) // "certificate required", or a write that comes too late

		nc, err := n.Dial("tcp", srv.Addr(), time.Second)
		require.NoError(t, err)
		_, err = io.WriteString(nc, "ruok without TLS")
		require.NoError(t, err)
		said, _ := io.ReadAll(nc)
		require.NotContains(t, string(said), "imok")
		nc.Close()

		id := conn.SessionID()
		srv.Stop()
		await(t, events, zk.StateDisconnected)
		require.NoError(t, srv.Start())
		await(t, events, zk.StateHasSession)
		require.Equal(t, id, conn.SessionID())
	})
}

func TestTLS_OverTCP_EndsAtOnceBesideASilentClient(t *testing.T) {
	a := testca.New(t, "zk.test")
	srv, err := NewServer(WithTLS(&tls.Config{Certificates: []tls.Certificate{a.Own().Pair}}))
	require.NoError(t, err)
	silent, err := net.Dial("tcp", srv.Addr()) // it never begins its handshake
	require.NoError(t, err)
	defer silent.Close()
	conn, err := tls.Dial("tcp", srv.Addr(), &tls.Config{ServerName: "zk.test", RootCAs: a.Pool()})
	require.NoError(t, err)
	defer conn.Close()
	srv.Close()
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
}
