package main

// Two locks that check the lab: a correct one, and one that admits every client. If an experiment
// finds the correct one wrong, or the wrong one correct, the experiment itself is wrong.
//
// The correct one is a queue in a server of a few lines. A holder's connection is its hold: no
// other client is granted while that connection is open, so a holder that is cut off or stopped
// keeps the lock as long as that lasts.

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
)

func init() {
	for _, right := range []bool{true, false} {
		for _, kind := range []kind{exclusive, readers, permits} {
			s := System{Name: "known-wrong", Title: "a lock that lets everybody in", Client: "written here", Promises: "Nothing.",
				Kind: kind, Server: knownServer(right, kind.room()), Sizes: []int{1}, Renews: true, Downgrades: true, Checks: true, Open: openKnown}
			if right {
				s.Name, s.Title, s.Promises = "known-right", "a queue in one process", "One at a time, for as long as its connection is there."
			}
			if kind != exclusive {
				s.Name, s.Title = s.Name+"-"+string(kind), s.Title+", "+string(kind)
			}
			register(s)
		}
	}
}

func knownServer(right bool, room int) *ServerKind {
	return &ServerKind{Name: fmt.Sprintf("known-%v-%d", right, room), Start: func(context.Context, Plan) (Cluster, error) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		k := &known{ln: ln, right: right, room: room, queues: map[string]*knownQueue{}}
		k.wg.Go(k.accept)
		return k, nil
	}}
}

type known struct {
	ln    net.Listener
	right bool
	room  int
	wg    sync.WaitGroup

	mu     sync.Mutex
	queues map[string]*knownQueue // by lock
	conns  []net.Conn
	tokens int64
}

// knownQueue is a lock. The first client in it holds, or the first room clients, or all readers up
// to the first writer.
type knownQueue struct{ turns []*knownTurn }

type knownTurn struct {
	came   chan struct{} // closed when it holds
	holds  bool
	shared bool
}

// wake admits the clients that may hold.
func (k *known) wake(q *knownQueue) {
	shared := true // all clients so far
	for i, t := range q.turns {
		shared = shared && t.shared
		if !t.holds && (!k.right || i < k.room || shared) {
			t.holds = true
			close(t.came)
		}
	}
}

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

// serve reads lines "acquire LOCK", "share LOCK", "downgrade" and "release", and replies with a
// token or "ok".
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
	defer func() { // the unread rest is dropped, and the reader ends
		c.Close()
		for range asked {
		}
		<-ended
	}()
	var q *knownQueue
	var mine *knownTurn
	give := func() {
		if mine != nil {
			k.leave(q, mine)
			mine = nil
		}
	}
	defer give()
	for line := range asked {
		word, lock, _ := strings.Cut(line, " ")
		answer := "ok"
		switch {
		case (word == "acquire" || word == "share") && mine == nil:
			q, mine = k.enqueue(lock, word == "share")
			select {
			case <-mine.came:
			case <-asked: // it has closed, or does not wait
				return
			}
			k.mu.Lock()
			k.tokens++
			answer = fmt.Sprint(k.tokens)
			k.mu.Unlock()
		case word == "downgrade" && mine != nil:
			k.mu.Lock()
			mine.shared = true
			k.wake(q)
			k.mu.Unlock()
		case word == "release":
			give()
		}
		if _, err := fmt.Fprintln(c, answer); err != nil {
			return
		}
	}
}

func (k *known) enqueue(lock string, shared bool) (*knownQueue, *knownTurn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	q := k.queues[lock]
	if q == nil {
		q = &knownQueue{}
		k.queues[lock] = q
	}
	turn := &knownTurn{came: make(chan struct{}), shared: shared}
	q.turns = append(q.turns, turn)
	k.wake(q)
	return q, turn
}

func (k *known) leave(q *knownQueue, turn *knownTurn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	q.turns = slices.DeleteFunc(q.turns, func(other *knownTurn) bool { return other == turn })
	k.wake(q)
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

func (l *knownLock) Acquire(ctx context.Context) (Hold, error)       { return l.take(ctx, "acquire") }
func (l *knownLock) AcquireShared(ctx context.Context) (Hold, error) { return l.take(ctx, "share") }

func (l *knownLock) take(ctx context.Context, word string) (Hold, error) {
	deadline, _ := ctx.Deadline()
	if err := l.c.SetReadDeadline(deadline); err != nil {
		return nil, err
	}
	h := &knownHold{knownLock: l}
	_, err := fmt.Fprintf(l.c, "%s %s\n", word, l.lock)
	if err == nil {
		_, err = fmt.Fscanln(l.r, &h.token)
	}
	return h, err
}

func (l *knownLock) Close() error { return l.c.Close() }

type knownHold struct {
	*knownLock
	token int64
	over  bool // a reader's hold has replaced it
}

func (h *knownHold) Token() (int64, bool)  { return h.token, true }
func (h *knownHold) Lost() <-chan struct{} { return nil }

func (h *knownHold) Share(ctx context.Context) (Hold, error) {
	h.over = true
	return &knownHold{knownLock: h.knownLock, token: h.token}, h.tell(ctx, "downgrade")
}

func (h *knownHold) Release(ctx context.Context) error {
	if h.over {
		return nil
	}
	return h.tell(ctx, "release")
}

func (h *knownHold) tell(ctx context.Context, word string) error {
	deadline, _ := ctx.Deadline()
	if err := h.c.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(h.c, word); err != nil {
		return err
	}
	var ok string
	_, err := fmt.Fscanln(h.r, &ok)
	return err
}
