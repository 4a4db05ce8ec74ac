package zkserver

// Ports that are free, and likely to remain so while a server is down between Stop and Start.

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The ports are below every system's ephemeral range (Linux 32768–60999, macOS and Windows from
// 49152). Within it, an outgoing connection could take the port of a stopped server, and a client
// that dials it could even connect to itself.
const lowestPort, highestPort = 10000, 32000

var taken struct {
	sync.Mutex
	ports map[int]bool // that this process has returned; never removed
}

// FreePort returns a port of 127.0.0.1 that has no listener and was not returned before. Another
// process may still take it first; Start then tries again.
func FreePort() (int, error) {
	taken.Lock()
	defer taken.Unlock()
	if taken.ports == nil {
		taken.ports = make(map[int]bool)
	}
	for range 1000 {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		if taken.ports[port] {
			continue
		}
		l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			return 0, err
		}
		taken.ports[port] = true
		return port, nil
	}
	return 0, errors.New("no free port found in 1000 tries")
}

// newMember picks the ports of one server.
func newMember(id int, hosts []Host) (member, error) {
	m := member{id: id}
	if len(hosts) > 0 {
		if id > len(hosts) {
			return member{}, fmt.Errorf("server %d has no host: there are %d", id, len(hosts))
		}
		m.host, m.client, m.quorum, m.election = hosts[id-1], 2181, 2888, 3888
		return m, nil
	}
	for _, p := range []*int{&m.client, &m.quorum, &m.election} {
		port, err := FreePort()
		if err != nil {
			return member{}, err
		}
		*p = port
	}
	return m, nil
}
