package zktest_test

// Tests of a job that runs under a zklock lock, as docs/testing.md shows them: the holder is
// killed, is cut off, is late.

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// store is the target of the job's writes. It remembers the largest token so far and rejects
// smaller ones.
type store struct {
	mu    sync.Mutex
	token int64
	lines []string
}

var errStale = errors.New("a later holder has written already")

func (s *store) write(token int64, line string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token < s.token {
		return errStale
	}
	s.token = token
	s.lines = append(s.lines, line)
	return nil
}

func (s *store) read() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lines)
}

// nightly is the code under test: it works under the lock, and stops when the lock is lost or its
// caller's context ends.
func nightly(ctx context.Context, s *zklock.Session, work func(ctx context.Context, token int64) error) error {
	m, err := zklock.NewMutex(s, "/locks/nightly")
	if err != nil {
		return err
	}
	return m.Do(ctx, func(ctx context.Context, hold *zklock.Hold) error {
		return work(ctx, hold.Token())
	})
}

// The hosts of the tests, each with a Session of its own.
const hostA, hostB = "198.51.100.1", "198.51.100.2"

// onTwoHosts runs a test in virtual time, with a server, and Sessions on two hosts.
func onTwoHosts(t *testing.T, test func(t *testing.T, network *zktest.Network, a, b *zklock.Session)) {
	synctest.Test(t, func(t *testing.T) {
		network := zktest.NewNetwork()
		srv := zktest.Start(t, zktest.WithNetwork(network))
		connect := func(host string) *zklock.Session {
			s, err := zklock.Connect(t.Context(), srv.Addr(), zklock.WithDialer(network.DialFrom(host)),
				zklock.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() }) // inside the bubble
			return s
		}
		test(t, network, connect(hostA), connect(hostB))
	})
}

func TestNightly_SessionExpired_ItsContextEnds(t *testing.T) {
	srv := zktest.Start(t)
	s, err := zklock.Connect(t.Context(), srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	err = nightly(t.Context(), s, func(ctx context.Context, _ int64) error {
		srv.ExpireSession(s.Stats().SessionID)
		<-ctx.Done()
		return nil
	})
	if !errors.Is(err, zklock.ErrLost) {
		t.Errorf("the job ended with %v", err)
	}
}

func TestNightly_HolderKilled_TheNextFinishesTheWork(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, network *zktest.Network, a, b *zklock.Session) {
		var out store
		var killed sync.WaitGroup
		killed.Go(func() {
			_ = nightly(t.Context(), a, func(_ context.Context, token int64) error {
				_ = out.write(token, "half of it")
				network.Partition(hostA) // from here on nothing comes from the host,
				<-t.Context().Done()     // and nothing happens on it
				return nil
			})
		})
		t.Cleanup(killed.Wait)
		time.Sleep(time.Second)

		began := time.Now()
		err := nightly(t.Context(), b, func(_ context.Context, token int64) error {
			if len(out.read()) == 1 { // does the job notice what a dead one has left?
				return out.write(token, "the other half")
			}
			return nil
		})
		if want := []string{"half of it", "the other half"}; err != nil || !slices.Equal(out.read(), want) {
			t.Errorf("%v: %q", err, out.read())
		}
		if wait := time.Since(began); wait < b.Stats().SessionTimeout-5*time.Second || wait > b.Stats().SessionTimeout+5*time.Second {
			t.Errorf("the next one waited %v", wait) // for the dead one's session timeout
		}
	})
}

func TestNightly_CutOff_StopsBeforeTheNextBegins(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, network *zktest.Network, a, b *zklock.Session) {
		var out store
		stopped := make(chan time.Time, 1)
		go func() {
			err := nightly(t.Context(), a, func(ctx context.Context, token int64) error {
				for ctx.Err() == nil { // does the job look, each time round?
					if err := out.write(token, "a"); err != nil {
						return err
					}
					time.Sleep(100 * time.Millisecond)
				}
				return context.Cause(ctx)
			})
			if !errors.Is(err, zklock.ErrLost) {
				t.Errorf("the job that was cut off ended with %v", err)
			}
			stopped <- time.Now()
		}()
		time.Sleep(time.Minute)
		network.Partition(hostA) // the job runs on, and neither it nor the server hears of the other

		var began time.Time
		err := nightly(t.Context(), b, func(_ context.Context, token int64) error {
			began = time.Now()
			return out.write(token, "b")
		})
		if err != nil {
			t.Error(err)
		}
		if at := <-stopped; !at.Before(began) {
			t.Errorf("both ran: the old one stopped %v after the new one had begun", at.Sub(began))
		}
	})
}

func TestNightly_Paused_ItsLateWriteIsRefused(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, network *zktest.Network, a, b *zklock.Session) {
		var out store
		ended := make(chan error, 1)
		go func() {
			ended <- nightly(t.Context(), a, func(ctx context.Context, token int64) error {
				if err := ctx.Err(); err != nil {
					return err
				}
				// Between this check and the write the whole process pauses, as in a long garbage
				// collection.
				network.Partition(hostA)
				time.Sleep(2 * a.Stats().SessionTimeout)
				network.Heal(hostA)
				return out.write(token, "a, late")
			})
		}()
		time.Sleep(time.Second)
		if err := nightly(t.Context(), b, func(_ context.Context, token int64) error { return out.write(token, "b") }); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, errStale) {
			t.Errorf("the late write: %v", err)
		}
		if lines := out.read(); !slices.Equal(lines, []string{"b"}) {
			t.Errorf("%q", lines)
		}
	})
}
