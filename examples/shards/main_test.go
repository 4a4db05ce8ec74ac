package main

// These tests attack the pool where partitions move: an order that two workers serve or none does,
// a worker that is stopped while it serves a request.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// cluster is a ZooKeeper server and workers, with a network and a time of their own.
type cluster struct {
	*testing.T
	net    *zktest.Network
	zk     *zktest.Server
	answer func(w http.ResponseWriter, r *http.Request, hold *zklock.Hold)
}

func inCluster(t *testing.T, f func(c *cluster)) {
	synctest.Test(t, func(t *testing.T) {
		n := zktest.NewNetwork()
		f(&cluster{T: t, net: n, zk: zktest.Start(t, zktest.WithNetwork(n)), answer: answer})
	})
}

// worker is one process.
type worker struct {
	addr  string
	stop  func() // SIGTERM
	ended chan error
}

func (c *cluster) start(i int) *worker {
	s, err := zklock.Connect(c.Context(), c.zk.Addr(), zklock.WithDialer(c.net.Dial))
	if err != nil {
		c.Fatal(err)
	}
	w := &worker{addr: fmt.Sprintf("192.0.2.%d:80", i), ended: make(chan error, 1)}
	l, err := c.net.Listen(w.addr)
	if err != nil {
		c.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.stop = cancel
	go func() { w.ended <- run(ctx, s, l, fmt.Sprintf("w%d", i), c.answer) }()
	return w
}

func (c *cluster) get(w *worker, key string) (status int, body string) {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(_ context.Context, network, addr string) (net.Conn, error) {
			return c.net.Dial(network, addr, time.Second)
		},
	}}
	answer, err := client.Get("http://" + w.addr + "/orders/" + key)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		c.Error(err)
	}
	return answer.StatusCode, string(b)
}

// owner returns the worker that serves an order, nil if none does. Every other worker must respond
// "not mine".
func (c *cluster) owner(key string, workers []*worker) (owner *worker) {
	for _, w := range workers {
		switch status, body := c.get(w, key); {
		case status == http.StatusOK && owner == nil:
			owner = w
		case status != http.StatusMisdirectedRequest || !strings.HasPrefix(body, "not mine: "):
			c.Errorf("%s answers %d for %s: %s", w.addr, status, key, body)
		}
	}
	return owner
}

func TestPool_EachOrderHasOneOwner_AndSIGTERMHandsOver(t *testing.T) {
	inCluster(t, func(c *cluster) {
		began, finish := make(chan struct{}), make(chan struct{})
		c.answer = func(w http.ResponseWriter, r *http.Request, hold *zklock.Hold) {
			if r.PathValue("key") == "slow" {
				close(began)
				<-finish
			}
			answer(w, r, hold)
		}
		workers := []*worker{c.start(1), c.start(2), c.start(3)}
		time.Sleep(2 * time.Second)
		owns := map[*worker]int{}
		for i := range 300 {
			owns[c.owner(fmt.Sprint(i), workers)]++
		}
		if len(owns) != 3 || owns[nil] > 0 {
			t.Errorf("300 orders, by owner: %v", owns)
		}
		key := "0" // in the partition of "slow"
		for i := 1; partitionOf(key) != partitionOf("slow"); i++ {
			key = fmt.Sprint(i)
		}
		first := c.owner(key, workers)
		for _, w := range workers {
			if _, body := c.get(w, key); w != first && !strings.Contains(body, first.addr) {
				t.Errorf("it does not say who owns it: %s", body)
			}
		}

		answered := make(chan int)
		go func() { status, _ := c.get(first, "slow"); answered <- status }()
		<-began
		first.stop()
		time.Sleep(time.Second)
		if w := c.owner(key, workers); w != nil {
			t.Errorf("%s answers while %s still does", w.addr, first.addr)
		}
		close(finish)
		if status := <-answered; status != http.StatusOK {
			t.Errorf("the request that had begun got %d", status)
		}
		if err := <-first.ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		var rest []*worker
		for _, w := range workers {
			if w != first {
				rest = append(rest, w)
			}
		}
		for i := range 300 {
			if c.owner(fmt.Sprint(i), rest) == nil {
				t.Errorf("nobody answers for order %d", i)
			}
		}
		for _, w := range rest {
			w.stop()
		}
		for _, w := range rest {
			if err := <-w.ended; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	})
}
