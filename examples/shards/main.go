// Command shards is a pool of workers that share 64 partitions. Each partition has one owner, which
// does its background work and serves its requests. Any other worker responds with 421 and the name
// of the owner. On SIGTERM a worker hands its partitions over, and ends.
//
//	ZKLOCK_SERVERS=127.0.0.1:2181 NAME=orders-0 LISTEN=127.0.0.1:8080 go run ./examples/shards
//	curl 127.0.0.1:8080/orders/4711
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/shards"
)

// partitions is the number of the group's shards. Only SetShards changes it: see docs/shards.md.
const partitions = 64

// partitionOf must be the same function in all workers and clients.
func partitionOf(key string) int {
	h := fnv.New32a()
	h.Write([]byte(key))
	return int(h.Sum32() % partitions)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	connecting, cancel := context.WithTimeout(ctx, time.Minute)
	session, err := zklock.Connect(connecting, os.Getenv("ZKLOCK_SERVERS"))
	if cancel(); err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:8080"))
	if err != nil {
		log.Fatal(err)
	}
	host, _ := os.Hostname()
	err = run(ctx, session, listener, cmp.Or(os.Getenv("NAME"), host), answer) // a name that stays the same after a restart, as the pod of a StatefulSet has
	if log.Print("stopped: ", err); ctx.Err() == nil {
		os.Exit(1)
	}
}

// answer is your work for a request. Until it returns, no other worker gets the partition, unless
// the hold is lost: so a write carries the token.
func answer(w http.ResponseWriter, r *http.Request, hold *zklock.Hold) {
	fmt.Fprintf(w, "order %s, token %d\n", r.PathValue("key"), hold.Token())
}

type pool struct {
	group  *shards.Group
	answer func(w http.ResponseWriter, r *http.Request, hold *zklock.Hold)

	mu    sync.Mutex
	mine  map[int]*partition
	owner shards.Assignment // the worker that should own each partition; a hint for clients that ask the wrong worker
}

// partition is a partition that this worker owns.
type partition struct {
	hold     *zklock.Hold
	requests sync.WaitGroup
}

// run works until ctx ends, or until the group or the HTTP server fails. It returns when other
// workers have the partitions, and closes the Session.
func run(ctx context.Context, session *zklock.Session, listener net.Listener, name string, answer func(http.ResponseWriter, *http.Request, *zklock.Hold)) error {
	defer session.Close()
	group, err := shards.New(session, "/orders/workers", partitions, shards.WithMember(name, []byte(listener.Addr().String())))
	if err != nil {
		return err
	}
	p := &pool{group: group, answer: answer, mine: map[int]*partition{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /orders/{key}", p.order)
	web := &http.Server{Handler: mux}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() { stop(web.Serve(listener)) }()
	go p.observe(ctx)
	err = group.Run(ctx, p.work) // while it hands over, requests are served: with 421 for a partition that it no longer owns
	ending, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(err, web.Shutdown(ending))
}

// work owns a partition until ctx ends. The next owner begins when work returns, so work first
// waits for the last request.
func (p *pool) work(ctx context.Context, shard int, hold *zklock.Hold) error {
	own := &partition{hold: hold}
	p.mu.Lock()
	p.mine[shard] = own
	p.mu.Unlock()
	defer own.requests.Wait()
	defer func() {
		p.mu.Lock()
		delete(p.mine, shard) // no request begins from here on
		p.mu.Unlock()
	}()
	for ctx.Err() == nil { // your work in the background: pass the token to every store that it writes to
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
	return nil
}

// order serves a request for one order, if this worker owns its partition.
func (p *pool) order(w http.ResponseWriter, r *http.Request) {
	shard := partitionOf(r.PathValue("key"))
	p.mu.Lock()
	own, owner := p.mine[shard], p.owner
	if own != nil {
		own.requests.Add(1)
		defer own.requests.Done()
	}
	p.mu.Unlock()
	if own == nil || own.hold.Err() != nil {
		m, _ := owner.Owner(shard)
		http.Error(w, fmt.Sprintf("not mine: partition %d should be at %s, %s", shard, m.Name, m.Data), http.StatusMisdirectedRequest)
		return
	}
	p.answer(w, r, own.hold)
}

// observe keeps track of the worker that should own each partition.
func (p *pool) observe(ctx context.Context) {
	for a, err := range p.group.Observe(ctx) {
		if err != nil {
			if ctx.Err() == nil {
				log.Print("who owns what is not known: ", err)
			}
			continue
		}
		p.mu.Lock()
		p.owner = a
		p.mu.Unlock()
	}
}
