package main

// Gates are proxies before the peer ports of etcd servers, so that one server can be cut off from
// the others. All servers must use the same address for a server, so there cannot be a gate for
// each pair. Instead, a gate asks the kernel which server has opened a connection.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

type gates struct {
	pids     func() []int // of the servers
	wg       sync.WaitGroup
	lns      []net.Listener
	backends []string

	mu    sync.Mutex // guards the fields below
	alone map[int]bool
	pairs map[net.Conn]pair
	done  bool
}

// pair has the servers that opened and accepted a connection. -1 is an unknown client.
type pair struct{ from, to int }

func newGates(pids func() []int) *gates {
	return &gates{pids: pids, alone: map[int]bool{}, pairs: map[net.Conn]pair{}}
}

// add creates a gate before the next server, and returns its address.
func (g *gates) add(backend string) (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	g.lns, g.backends = append(g.lns, ln), append(g.backends, backend)
	return ln.Addr().String(), nil
}

// open opens all gates, once all servers are added.
func (g *gates) open() {
	for to, ln := range g.lns {
		g.wg.Go(func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				g.wg.Go(func() { g.serve(c, to, g.backends[to]) })
			}
		})
	}
}

func (g *gates) serve(c net.Conn, to int, backend string) {
	defer c.Close()
	from, err := g.opener(c)
	if err != nil {
		return // the servers try again
	}
	server, err := net.Dial("tcp", backend)
	if err != nil {
		return
	}
	defer server.Close()
	p := pair{from, to}
	if !g.enter(p, c, server) {
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{c, server}, {server, c}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1]) // when either direction ends, so does the connection
			c.Close()
			server.Close()
		})
	}
	both.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.pairs, c)
	delete(g.pairs, server)
}

// enter reports whether the two may communicate, and notes their connections.
func (g *gates) enter(p pair, conns ...net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.done || g.partedLocked(p) {
		return false
	}
	for _, c := range conns {
		g.pairs[c] = p
	}
	return true
}

// partedLocked reports whether one of the two is cut off from the other. While any server is cut
// off, an unknown client is cut off from all.
func (g *gates) partedLocked(p pair) bool {
	return p.from != p.to && (g.alone[p.from] || g.alone[p.to] || p.from < 0 && len(g.alone) > 0)
}

// isolate closes the connections between a server and the other servers, and rejects new ones.
func (g *gates) isolate(i int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.alone[i] = true
	for c, p := range g.pairs {
		if g.partedLocked(p) {
			c.Close()
		}
	}
}

func (g *gates) heal() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.alone)
}

func (g *gates) close() {
	g.mu.Lock()
	g.done = true
	for c := range g.pairs {
		c.Close()
	}
	g.mu.Unlock()
	for _, ln := range g.lns {
		ln.Close()
	}
	g.wg.Wait()
}

// opener returns the server that has opened a connection, by the owner of its socket.
func (g *gates) opener(c net.Conn) (int, error) {
	inode, err := socketOf(c.RemoteAddr().(*net.TCPAddr), c.LocalAddr().(*net.TCPAddr))
	if err != nil {
		return -1, err
	}
	for i, pid := range g.pids() {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil {
			return -1, err
		}
		for _, f := range files {
			if at, err := os.Readlink(f); err == nil && at == "socket:["+inode+"]" { // an error means that the process has closed the file
				return i, nil
			}
		}
	}
	return -1, nil
}

// socketOf returns the number of the socket with these two ends, from /proc.
func socketOf(local, remote *net.TCPAddr) (string, error) {
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return "", err
	}
	ends := procAddr(local) + " " + procAddr(remote)
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 9 && f[1]+" "+f[2] == ends {
			return f[9], nil
		}
	}
	return "", errors.New("no socket has " + ends)
}

// procAddr formats an address as /proc does: the address in host byte order, the port in network
// byte order.
func procAddr(a *net.TCPAddr) string {
	return fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(a.IP.To4()), a.Port)
}
