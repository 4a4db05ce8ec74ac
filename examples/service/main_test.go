package main

// These tests stop the service while it sweeps, while a sweep does not end, and while ZooKeeper is
// away; and check its reports about itself.

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// kubernetes is how long Kubernetes waits before it kills.
const kubernetes = 30 * time.Second

// cluster is a ZooKeeper server and replicas of the service, with a network and a time of their
// own.
type cluster struct {
	*testing.T
	net *zktest.Network
	zk  *zktest.Server
}

func inCluster(t *testing.T, f func(c *cluster)) {
	synctest.Test(t, func(t *testing.T) {
		n := zktest.NewNetwork()
		f(&cluster{T: t, net: n, zk: zktest.Start(t, zktest.WithNetwork(n))})
	})
}

// replica is one process of the service.
type replica struct {
	*cluster
	addr    string
	session *zklock.Session
	sweeps  chan context.Context // a sweep that has begun
	stop    func()               // the signal
	ended   chan error
}

// start runs a replica. Its sweeps are reported, and then last as long as work.
func (c *cluster) start(addr string, work func(context.Context)) *replica {
	s, err := zklock.Connect(c.Context(), c.zk.Addr(), zklock.WithDialer(c.net.Dial))
	if err != nil {
		c.Fatal(err)
	}
	l, err := c.net.Listen(addr)
	if err != nil {
		c.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.Context())
	r := &replica{cluster: c, addr: addr, session: s, sweeps: make(chan context.Context, 100), stop: cancel, ended: make(chan error, 1)}
	go func() {
		r.ended <- run(ctx, s, l, func(ctx context.Context) error {
			r.sweeps <- ctx
			work(ctx)
			return ctx.Err()
		})
	}()
	return r
}

// end waits for the end of the replica, and fails if Kubernetes would have killed it.
func (r *replica) end() error {
	began := time.Now()
	err := <-r.ended
	if took := time.Since(began); took > kubernetes {
		r.Errorf("it took %v to stop: it would have been killed", took)
	}
	return err
}

// get returns the status and the body of a response, 0 if there is no response.
func (r *replica) get(path string) (status int, body string) {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(_ context.Context, network, addr string) (net.Conn, error) {
			return r.net.Dial(network, addr, time.Second)
		},
	}}
	answer, err := client.Get("http://" + r.addr + path)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		r.Error(err)
	}
	return answer.StatusCode, string(b)
}

func until(d time.Duration) func(context.Context) {
	return func(ctx context.Context) { pause(ctx, d) }
}

// A service that is stopped in the middle of a sweep reports at once that it is not ready, and
// still serves requests. It finishes the sweep and releases, and the next leader follows, long
// before the session timeout.
func TestService_Stopped_FinishesReleasesAndHandsOver(t *testing.T) {
	inCluster(t, func(c *cluster) {
		first := c.start("192.0.2.81:80", until(10*time.Second))
		sweep := <-first.sweeps
		second := c.start("192.0.2.82:80", until(time.Second))
		first.stop()
		synctest.Wait()
		if status, _ := first.get("/readyz"); status != 503 {
			t.Error("stopping, and ready:", status)
		}
		if status, _ := first.get("/healthz"); status != 200 {
			t.Error("stopping, and not alive:", status)
		}
		began := time.Now()
		<-second.sweeps
		if took := time.Since(began); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("the next leader swept after %v: a sweep of 10 s is to be finished, and then handed over", took)
		}
		if err := first.end(); errors.Is(err, zklock.ErrNotConfirmed) || errors.Is(err, errNotHandedOver) {
			t.Error(err)
		}
		if status, _ := first.get("/readyz"); status != 0 || sweep.Err() == nil {
			t.Error("stopped, and it answers", status)
		}
		second.stop()
		_ = second.end()
	})
}

// A sweep that takes too long is asked to stop, in time.
func TestService_Stopped_EndsALongSweep(t *testing.T) {
	inCluster(t, func(c *cluster) {
		r := c.start("192.0.2.81:80", until(time.Hour))
		sweep := <-r.sweeps
		r.stop()
		began := time.Now()
		<-sweep.Done()
		if took := time.Since(began); took != finish {
			t.Errorf("its context ended after %v", took)
		}
		if err := r.end(); errors.Is(err, errNotHandedOver) || r.session.Stats().State != zklock.StateClosed {
			t.Error(err)
		}
	})
}

// A sweep that ignores its context does not delay the end of the process, and no other replica
// leads before that.
func TestService_Stopped_LeavesASweepThatDoesNotReturn(t *testing.T) {
	inCluster(t, func(c *cluster) {
		awake := make(chan struct{})
		first := c.start("192.0.2.81:80", func(context.Context) { <-awake })
		<-first.sweeps
		second := c.start("192.0.2.82:80", until(time.Second))
		first.stop()
		if err := first.end(); !errors.Is(err, errNotHandedOver) {
			t.Error(err)
		}
		if len(second.sweeps) > 0 {
			t.Error("two sweep at a time")
		}
		first.session.Close() // the end of the process
		close(awake)
		<-second.sweeps
		second.stop()
		_ = second.end()
	})
}

// A service without ZooKeeper stops in time, too: a leader, and a waiting candidate.
func TestService_Stopped_WithoutServers(t *testing.T) {
	inCluster(t, func(c *cluster) {
		leader := c.start("192.0.2.81:80", until(time.Second))
		<-leader.sweeps
		waiter := c.start("192.0.2.82:80", until(time.Second))
		synctest.Wait()
		c.net.Partition(c.zk.Addr())
		leader.stop()
		waiter.stop()
		if err := errors.Join(leader.end(), waiter.end()); errors.Is(err, errNotHandedOver) {
			t.Error(err)
		}
	})
}

// Each replica reports the leader, and whether it leads itself.
func TestService_KnowsTheLeader(t *testing.T) {
	inCluster(t, func(c *cluster) {
		first := c.start("192.0.2.81:80", until(time.Second))
		<-first.sweeps
		second := c.start("192.0.2.82:80", until(time.Second))
		time.Sleep(time.Second) // in virtual time
		for r, want := range map[*replica]string{first: "192.0.2.81:80 leads; this replica: true\n", second: "192.0.2.81:80 leads; this replica: false\n"} {
			if _, body := r.get("/leader"); body != want {
				t.Errorf("%s says %q", r.addr, body)
			}
		}
		first.stop()
		_ = first.end()
		<-second.sweeps
		synctest.Wait()
		if _, body := second.get("/leader"); !strings.HasPrefix(body, "192.0.2.82:80 leads; this replica: true") {
			t.Errorf("the next leader says %q", body)
		}
		second.stop()
		_ = second.end()
	})
}

// While no server can be reached the service is alive and not ready; closed, it is neither.
func TestService_Health(t *testing.T) {
	srv := zktest.Start(t)
	s, err := zklock.Connect(t.Context(), srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	v := &service{session: s}
	answers := func(alive, ready int) {
		for path, want := range map[string]int{"/healthz": alive, "/readyz": ready} {
			w := httptest.NewRecorder()
			if v.ServeHTTP(w, httptest.NewRequest("GET", path, nil)); w.Code != want {
				t.Error(s.Stats().State, path, w.Code)
			}
		}
	}
	answers(200, 200)
	changes := s.Changes(t.Context())
	srv.Stop()
	<-changes // Suspended
	answers(200, 503)
	s.Close()
	answers(503, 503)
}
