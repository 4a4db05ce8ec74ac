package zktest_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/zkserver"
	. "github.com/zklock/zklock/zktest"
)

// pair returns the two ends of a connection.
func pair(t *testing.T, n *Network) (client, server net.Conn, addr string) {
	t.Helper()
	ln, err := n.Listen("")
	require.NoError(t, err)
	t.Cleanup(func() { ln.Close() })
	addr = ln.Addr().String()
	client, err = n.Dial("tcp", addr, time.Second)
	require.NoError(t, err)
	server, err = ln.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server, addr
}

func TestNetwork_WritesAreBuffered(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		client, server, _ := pair(t, n)
		_, err := client.Write([]byte("hello"))
		require.NoError(t, err, "nobody reads yet")
		require.NoError(t, client.Close())
		got, err := io.ReadAll(server)
		require.NoError(t, err)
		require.Equal(t, "hello", string(got), "what was written before Close still arrives")
		_, err = server.Write([]byte("x"))
		require.ErrorIs(t, err, syscall.EPIPE)
	})
}

func TestNetwork_FullBuffer_WritersWait(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		client, server, _ := pair(t, n)
		big := bytes.Repeat([]byte("x"), 1<<20)
		done := make(chan error, 1)
		go func() {
			_, err := client.Write(big)
			done <- err
		}()
		synctest.Wait()
		require.Empty(t, done)
		got := make([]byte, len(big))
		_, err := io.ReadFull(server, got)
		require.NoError(t, err)
		require.NoError(t, <-done)
		require.True(t, bytes.Equal(big, got))
	})
}

func TestNetwork_HalfClose(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		client, server, _ := pair(t, n)
		require.NoError(t, client.(interface{ CloseWrite() error }).CloseWrite())
		_, err := server.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		_, err = server.Write([]byte("answer"))
		require.NoError(t, err)
		require.NoError(t, server.Close())
		got, err := io.ReadAll(client)
		require.NoError(t, err)
		require.Equal(t, "answer", string(got))
		_, err = client.Write([]byte("x"))
		require.ErrorIs(t, err, net.ErrClosed)
	})
}

func TestNetwork_Deadlines(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		client, server, _ := pair(t, n)
		start := time.Now()
		client.SetReadDeadline(time.Now().Add(3 * time.Second))
		_, err := client.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		var ne net.Error
		require.True(t, errors.As(err, &ne) && ne.Timeout())
		require.Equal(t, 3*time.Second, time.Since(start))

		// A new deadline makes the connection usable again, and a past deadline ends a read in
		// progress.
		client.SetReadDeadline(time.Time{})
		done := make(chan error, 1)
		go func() {
			_, err := client.Read(make([]byte, 1))
			done <- err
		}()
		synctest.Wait()
		client.SetDeadline(time.Now())
		require.ErrorIs(t, <-done, os.ErrDeadlineExceeded)
		client.SetDeadline(time.Now().Add(time.Hour))
		_, err = server.Write([]byte("x"))
		require.NoError(t, err)
		_, err = client.Read(make([]byte, 1))
		require.NoError(t, err)
	})
}

func TestNetwork_CloseWakesItsOwnReader(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		client, _, _ := pair(t, n)
		done := make(chan error, 1)
		go func() {
			_, err := client.Read(make([]byte, 1))
			done <- err
		}()
		synctest.Wait()
		client.Close()
		require.ErrorIs(t, <-done, net.ErrClosed)
	})
}

func TestNetwork_NobodyListens_Refused(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		_, err := n.Dial("tcp", "192.0.2.9:2181", time.Second)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		_, err = n.Listen("192.0.2.9:2181")
		require.NoError(t, err)
		_, err = n.Listen("192.0.2.9:2181")
		require.ErrorIs(t, err, syscall.EADDRINUSE)
	})
}

// A client that has an address but not the network's dialer dials the address on the machine's
// network, so no machine may have it.
func TestNetwork_Addresses_AreNobodys(t *testing.T) {
	servers, clients := netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.51.100.0/24")
	n, seen := NewNetwork(), map[string]bool{}
	for range 600 {
		ln, err := n.Listen("")
		require.NoError(t, err)
		defer ln.Close()
		addr := ln.Addr().String()
		require.True(t, servers.Contains(netip.MustParseAddrPort(addr).Addr()), addr)
		c, err := n.Dial("tcp", addr, 0)
		require.NoError(t, err)
		defer c.Close()
		from := c.LocalAddr().String()
		require.True(t, clients.Contains(netip.MustParseAddrPort(from).Addr()), from)
		require.False(t, seen[addr] || seen[from], "%s, %s", addr, from)
		seen[addr], seen[from] = true, true
	}
}

func TestNetwork_Latency(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		n.SetLatency(50 * time.Millisecond)
		start := time.Now()
		client, server, _ := pair(t, n)
		require.Equal(t, 100*time.Millisecond, time.Since(start), "the handshake")
		start = time.Now()
		client.Write([]byte("a"))
		client.Write([]byte("b"))
		buf := make([]byte, 2)
		_, err := io.ReadFull(server, buf)
		require.NoError(t, err)
		require.Equal(t, 50*time.Millisecond, time.Since(start))
	})
}

func TestNetwork_Partition_KeepsAndDeliversLater(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		client, server, addr := pair(t, n)
		n.Partition(addr)
		client.Write([]byte("x"))
		server.SetReadDeadline(time.Now().Add(time.Second))
		_, err := server.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		_, err = n.Dial("tcp", addr, time.Second)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		dialled := make(chan error, 1)
		go func() {
			c, err := n.Dial("tcp", addr, time.Minute)
			if err == nil {
				c.Close()
			}
			dialled <- err
		}()
		time.Sleep(5 * time.Second)
		n.Heal(addr)
		require.NoError(t, <-dialled)
		server.SetReadDeadline(time.Time{})
		_, err = server.Read(make([]byte, 1))
		require.NoError(t, err)
	})
}

func TestNetwork_PartitionOfOneHost_LeavesTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		srv := Start(t, WithNetwork(n))
		cut, _ := connectEvents(t, srv.Addr(), 10*time.Second, func(c *zk.Conn) { zk.WithDialer(zkserver.LastZxids(n.DialFrom("198.51.100.1")))(c) })
		other := connect(t, srv, 10*time.Second, dialing(n))
		id := cut.SessionID()
		require.Contains(t, srv.Sessions()[0].RemoteAddr, "198.51.100.1:")
		n.Partition("198.51.100.1")
		time.Sleep(20 * time.Second)
		require.Len(t, srv.Sessions(), 1)
		require.Equal(t, other.SessionID(), srv.Sessions()[0].ID)
		n.Heal("198.51.100.1")
		time.Sleep(20 * time.Second)
		require.Len(t, srv.Sessions(), 2)
		require.NotEqual(t, id, cut.SessionID())
	})
}
