// Package watch is the guard's side of internal/guard: it accepts the connections of Sessions, and
// ends the ZooKeeper sessions of processes that have died.
//
// It promises that it ends a session only if each process that has sent it is dead, and none of
// these connections exists any more, or if the Session is closed. Each of the two kinds of evidence
// comes from the kernel. The end of the connection alone proves nothing: a process can close it and
// continue to work. The death of the process alone proves nothing either: a child without exec may
// have a copy of its connection, and do its work. Time, and the states in /proc, are no evidence.
//
// It must not depend on how a session is ended, and it ends no process.
package watch

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/zklock/zklock/internal/guard"
	"github.com/zklock/zklock/internal/sessionkey"
)

// Guard watches the processes that connect to a socket.
type Guard struct {
	end func(key sessionkey.Key, pid int)
	log func(format string, args ...any)

	mu struct {
		sync.Mutex
		peers    map[*peer]struct{}
		sessions map[int64]*left
		logged   map[string]bool // why connections were rejected
	}
}

// left is a session that may have to be ended.
type left struct {
	key sessionkey.Key
	by  map[*peer]struct{} // the connections over which it was sent: after a lost connection there is another one
}

// New returns a Guard. It calls end, on goroutines of its own, to end a session that a process has
// left behind. The process is 0 if it is in a PID namespace that we do not see.
func New(end func(key sessionkey.Key, pid int), log func(format string, args ...any)) *Guard {
	g := &Guard{end: end, log: log}
	g.mu.peers, g.mu.sessions, g.mu.logged = map[*peer]struct{}{}, map[int64]*left{}, map[string]bool{}
	return g
}

// Serve accepts connections until the listener is closed or its deadline has passed.
func (g *Guard) Serve(l *net.UnixListener) error {
	for {
		conn, err := l.AcceptUnix()
		switch {
		case errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOMEM):
			g.logOnce("accepts no connection now: " + advised(err).Error())
			time.Sleep(100 * time.Millisecond) // until a connection has ended
			continue
		case err != nil:
			return err
		}
		p, err := newPeer(conn)
		if err != nil {
			_ = conn.Close()
			g.logOnce("rejected a connection: " + err.Error())
			continue
		}
		g.mu.Lock()
		g.mu.peers[p] = struct{}{}
		g.mu.Unlock()
		go g.serve(p)
	}
}

func (g *Guard) logOnce(text string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.mu.logged[text] {
		g.mu.logged[text] = true
		g.log("%s", text)
	}
}

// Drain waits until the sessions of the processes that are dead now were ended, or given up, at
// most for limit. Call it after Serve has returned.
func (g *Guard) Drain(limit time.Duration) {
	var dead []*peer
	g.mu.Lock()
	for p := range g.mu.peers {
		if p.isDead() {
			dead = append(dead, p)
		}
	}
	g.mu.Unlock()
	late := time.After(limit)
	for _, p := range dead {
		select {
		case <-p.done:
		case <-late:
			return
		}
	}
}

// serve reads from a connection until it ends, and then waits until its process is dead.
func (g *Guard) serve(p *peer) {
	defer g.forget(p)
	_, _ = p.conn.Write([]byte(guard.Welcome))
	err := g.read(p)
	_ = p.conn.Close()
	if err == nil && !p.awaitDeath() {
		err = errors.New("the kernel does not show its death")
	}
	unused := err == nil || err == errBye
	if !unused {
		g.log("process %d: %v: its sessions are not ended when it dies", p.pid, err)
	}
	var ends sync.WaitGroup
	for _, key := range g.take(p, unused) {
		ends.Go(func() { g.end(key, p.pid) })
	}
	ends.Wait()
}

var (
	errBye     = errors.New("the Session is closed")
	errGarbage = errors.New("sent a line that is no message")
)

const longestLine = 64 << 10

// read returns nil at the end of the connection, and errBye if its Session was closed before. What
// it has read of an unfinished line does not count.
func (g *Guard) read(p *peer) error {
	for r := bufio.NewReaderSize(p.conn, longestLine); ; {
		line, err := r.ReadSlice('\n')
		switch {
		case err == io.EOF, errors.Is(err, syscall.ECONNRESET): // the latter if it has not read our message
			return nil
		case err == bufio.ErrBufferFull:
			return errGarbage
		case err != nil:
			return err
		}
		var m guard.Message
		switch err := json.Unmarshal(line, &m); {
		case err != nil:
			return errGarbage
		case m.Session != nil:
			g.add(p, *m.Session)
		case m.Over != 0:
			g.mu.Lock()
			delete(g.mu.sessions, m.Over)
			g.mu.Unlock()
		case m.Bye:
			return errBye
		}
	}
}

func (g *Guard) add(p *peer, key sessionkey.Key) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.mu.sessions[key.ID]
	if s == nil {
		s = &left{by: map[*peer]struct{}{}}
		g.mu.sessions[key.ID] = s
	}
	s.key = key
	s.by[p] = struct{}{}
}

// forget removes a process whose sessions were ended.
func (g *Guard) forget(p *peer) {
	p.close()
	close(p.done)
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.mu.peers, p)
}

// take takes a connection's sessions, and returns those that no connection has any more. If the
// process may still use its sessions, they are never ended.
func (g *Guard) take(p *peer, unused bool) (left []sessionkey.Key) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, s := range g.mu.sessions {
		if _, is := s.by[p]; !is {
			continue
		}
		delete(s.by, p)
		if len(s.by) > 0 && unused {
			continue
		}
		delete(g.mu.sessions, id)
		if unused {
			left = append(left, s.key)
		}
	}
	return left
}
