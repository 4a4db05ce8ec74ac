package main

// Ports for servers that bind them later, or again. The kernel takes the ports of outgoing
// connections from a range of its own, by default 32768 and up. A port of that range that is free
// now may be taken when a slow server binds it, or while a server restarts. So servers get ports
// below that range.

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

var serverPorts = newPorts(20000, 32000)

// ports gives each of its ports once.
type ports struct {
	from, n int
	mu      sync.Mutex
	given   map[int]bool
}

func newPorts(from, to int) *ports { return &ports{from: from, n: to - from, given: map[int]bool{}} }

// addr returns a loopback address with a free port that it has not returned before. It begins at a
// random port, so that two labs on one machine rarely collide.
func (p *ports) addr() (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for first, i := rand.IntN(p.n), 0; i < p.n; i++ {
		port := p.from + (first+i)%p.n
		if p.given[port] {
			continue
		}
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			continue // taken by another program
		}
		p.given[port] = true
		return addr, ln.Close()
	}
	return "", fmt.Errorf("no port is free from %d to %d", p.from, p.from+p.n-1)
}
