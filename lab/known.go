package main

// Two locks that check the lab: one that is right, and one that lets everybody in. An experiment that finds the right one wrong, or
// the wrong one right, is itself wrong.
//
// The right one is a queue in a server of a few lines. A holder's connection is its hold: it is never given to another while that
// connection is there, so a holder that is cut off or stopped keeps the lock for as long as that lasts.

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
)

func init() {
	for _, right := range []bool{true, false} {
		s := System{Name: "known-wrong", Title: "a lock that lets everybody in", Client: "written here", Promises: "Nothing.",
			Server: knownServer(right), Sizes: []int{1}, Renews: true, Checks: true, Open: openKnown}
		if right {
			s.Name, s.Title, s.Promises = "known-right", "a queue in one process", "One at a time, for as long as its connection is there."
		}
		register(s)
	}
}

func knownServer(right bool) *ServerKind {
	return &ServerKind{Name: fmt.Sprintf("known-%v", right), Start: func(context.Context, Plan) (Cluster, error) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		k := &known{ln: ln, right: right, queues: map[string]*knownQueue{}}
		k.wg.Go(k.accept)
		return k, nil
	}}
}

type known struct {
	ln    net.Listener
	right bool
	wg    sync.WaitGroup

	mu     sync.Mutex
	queues map[string]*knownQueue // by lock
	conns  []net.Conn
	tokens int64
}

// knownQueue is a lock: the first in it holds.
type knownQueue struct{ turns []chan struct{} }

func (k *known) Addrs() []string   { return []string{k.ln.Addr().String()} }
func (k *known) Version() string   { return "the lab's own" }
func (k *known) Pids() []int       { return []int{os.Getpid()} }
func (k *known) Kill(int) error    { return fmt.Errorf("it is the lab itself") }
func (k *known) Stop(int) error    { return fmt.Errorf("it is the lab itself") }
func (k *known) Cont(int) error    { return fmt.Errorf("it is the lab itself") }
func (k *known) Restart(int) error { return fmt.Errorf("it is the lab itself") }

func (k *known) Close() error {
	err := k.ln.Close()
	k.mu.Lock()
	for _, c := range k.conns {
		c.Close()
	}
	k.mu.Unlock()
	k.wg.Wait()
	return err
}

func (k *known) accept() {
	for {
		c, err := k.ln.Accept()
		if err != nil {
			return
		}
		k.mu.Lock()
		k.conns = append(k.conns, c)
		k.mu.Unlock()
		k.wg.Go(func() { k.serve(c) })
	}
}

// serve takes lines "acquire LOCK" and "release", and answers with a token or "ok".
func (k *known) serve(c net.Conn) {
	defer c.Close()
	asked := make(chan string)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer close(asked)
		for lines := bufio.NewScanner(c); lines.Scan(); {
			asked <- lines.Text()
		}
	}()
	defer func() { // what is left to read is thrown away, and the reader ends
		c.Close()
		for range asked {
		}
		<-ended
	}()
	var give func()
	defer func() {
		if give != nil {
			give()
		}
	}()
	for line := range asked {
		word, lock, _ := strings.Cut(line, " ")
		answer := "ok"
		switch {
		case word == "acquire" && give == nil:
			turn, g := k.enqueue(lock)
			give = g
			select {
			case <-turn:
			case <-asked: // it has closed, or does not wait
				return
			}
			k.mu.Lock()
			k.tokens++
			answer = fmt.Sprint(k.tokens)
			k.mu.Unlock()
		case word == "release" && give != nil:
			give()
			give = nil
		}
		if _, err := fmt.Fprintln(c, answer); err != nil {
			return
		}
	}
}

// enqueue returns a channel that is closed when it is the caller's turn, and what takes it out of the queue.
func (k *known) enqueue(lock string) (<-chan struct{}, func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	q := k.queues[lock]
	if q == nil {
		q = &knownQueue{}
		k.queues[lock] = q
	}
	turn := make(chan struct{})
	q.turns = append(q.turns, turn)
	if len(q.turns) == 1 || !k.right {
		close(turn)
	}
	return turn, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		for i, other := range q.turns {
			if other == turn {
				q.turns = append(q.turns[:i:i], q.turns[i+1:]...)
				if i == 0 && len(q.turns) > 0 && k.right {
					close(q.turns[0])
				}
				return
			}
		}
	}
}

func openKnown(ctx context.Context, addrs []string, lock string, _ Options) (Lock, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addrs[0])
	if err != nil {
		return nil, err
	}
	return &knownLock{c: c, r: bufio.NewReader(c), lock: lock}, nil
}

type knownLock struct {
	c    net.Conn
	r    *bufio.Reader
	lock string
}

func (l *knownLock) Acquire(ctx context.Context) (Hold, error) {
	deadline, _ := ctx.Deadline()
	if err := l.c.SetReadDeadline(deadline); err != nil {
		return nil, err
	}
	var h knownHold
	h.knownLock = l
	_, err := fmt.Fprintf(l.c, "acquire %s\n", l.lock)
	if err == nil {
		_, err = fmt.Fscanln(l.r, &h.token)
	}
	return h, err
}

func (l *knownLock) Close() error { return l.c.Close() }

type knownHold struct {
	*knownLock
	token int64
}

func (h knownHold) Token() (int64, bool)  { return h.token, true }
func (h knownHold) Lost() <-chan struct{} { return nil }

func (h knownHold) Release(ctx context.Context) error {
	deadline, _ := ctx.Deadline()
	if err := h.c.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(h.c, "release"); err != nil {
		return err
	}
	var ok string
	_, err := fmt.Fscanln(h.r, &ok)
	return err
}
