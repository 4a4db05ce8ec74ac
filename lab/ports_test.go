package main

import (
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPorts_EachOnce_AndNoneThatIsTaken(t *testing.T) {
	first, err := serverPorts.addr()
	require.NoError(t, err)
	ln, err := net.Listen("tcp", first)
	require.NoError(t, err)
	defer ln.Close()
	port := ln.Addr().(*net.TCPAddr).Port

	_, err = newPorts(port, port+1).addr()
	require.ErrorContains(t, err, "no port is free", "it is taken")
	require.NoError(t, ln.Close())
	one := newPorts(port, port+1)
	addr, err := one.addr()
	require.NoError(t, err)
	require.Equal(t, first, addr)
	_, err = one.addr()
	require.ErrorContains(t, err, "no port is free", "it was given")
}

// The basis of the range: the kernel assigns none of these ports to outgoing connections.
func TestPorts_BelowThoseOfOutgoingConnections(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if os.IsNotExist(err) {
		require.NotEqual(t, "1", os.Getenv("ZKLOCK_REQUIRE"), "ZKLOCK_REQUIRE=1, and this system does not say which ports outgoing connections get")
		t.Skip("this system does not say which ports outgoing connections get")
	}
	require.NoError(t, err)
	low, err := strconv.Atoi(strings.Fields(string(text))[0])
	require.NoError(t, err)
	require.LessOrEqual(t, serverPorts.from+serverPorts.n, low)
}
