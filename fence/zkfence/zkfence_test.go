package zkfence_test

// These tests attack a gate with the sequencers of zklock's holds: late ones, forged ones, shared
// holds, outages.

import (
	"context"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/fence"
	"github.com/zklock/zklock/fence/zkfence"
	"github.com/zklock/zklock/zktest"
)

const bound = time.Second // of a check

// world is a server, and the Sessions of holders and of a service, in one synctest bubble.
type world struct {
	*testing.T
	net *zktest.Network
	srv *zktest.Server
}

func inVirtualTime(t *testing.T, f func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		n := zktest.NewNetwork()
		f(t, &world{t, n, zktest.Start(t, zktest.WithNetwork(n))})
	})
}

func (w *world) connect(chroot string) *zklock.Session {
	s, err := zklock.Connect(w.Context(), w.srv.Addr()+chroot, zklock.WithDialer(w.net.Dial), zklock.WithCreateChroot(),
		zklock.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(w, err)
	w.Cleanup(func() { _ = s.Close() })
	return s
}

func (w *world) acquire(l zklock.Lock) *zklock.Hold {
	w.Helper()
	h, err := l.Acquire(w.Context())
	require.NoError(w, err)
	return h
}

func (w *world) release(h *zklock.Hold) {
	w.Helper()
	require.NoError(w, h.Release(w.Context()))
}

func (w *world) mutex(path string) *zklock.Mutex {
	m, err := zklock.NewMutex(w.connect(""), path)
	require.NoError(w, err)
	return m
}

// gate is the gate of a service that was just started.
func gate(s *zklock.Session, parse func(string) (fence.Claim, error)) *fence.Gate {
	return &fence.Gate{Guard: fence.NewGuard(fence.NewMemory(10)), Parse: parse, Check: zkfence.Check(s, bound)}
}

// post sends a request under a sequencer, and returns its status.
func post(g *fence.Gate, lock, text string) int {
	r := httptest.NewRequest("POST", "/", nil)
	r.Header.Set(fence.Header, text)
	answer := httptest.NewRecorder()
	work := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	g.Handler(work, func(*http.Request) (string, bool) { return lock, true }).ServeHTTP(answer, r)
	return answer.Code
}

func TestVirtual_Gate_EachAnswerHasItsStatus(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		s, m := w.connect(""), w.mutex("/job")
		status := func(want int, text, what string) {
			t.Helper()
			require.Equal(t, want, post(gate(s, zkfence.ParseExclusive), "/job", text), what)
		}
		h := w.acquire(m)
		q := h.Sequencer()
		status(200, q.String(), "holds")
		status(400, "rubbish", "rubbish")
		status(400, w.acquire(w.mutex("/other")).Sequencer().String(), "of another lock")
		rw, err := zklock.NewRWMutex(w.connect(""), "/rw")
		require.NoError(t, err)
		require.Equal(t, 400, post(gate(s, zkfence.ParseExclusive), "/rw", w.acquire(rw.ReadLock()).Sequencer().String()), "not alone")

		ctx, cancel := context.WithCancel(t.Context())
		waits := make(chan error)
		go func() {
			_, err := m.Acquire(ctx)
			waits <- err
		}()
		synctest.Wait()
		forged := q
		for _, name := range w.srv.Children("/job") {
			if forged.Node = "/job/" + name; forged.Node != q.Node {
				break
			}
		}
		st, _ := w.srv.Stat(forged.Node)
		forged.Token = st.Czxid
		status(400, forged.String(), "of a node that waits")
		cancel()
		require.ErrorIs(t, <-waits, context.Canceled)

		w.srv.Freeze()
		began := time.Now()
		status(503, q.String(), "no answer")
		require.Equal(t, bound, time.Since(began))
		w.srv.Thaw()
		admin := w.connect("").Conn()
		_, err = admin.SetACL("/job", zk.WorldACL(zk.PermAdmin), -1)
		require.NoError(t, err)
		status(503, q.String(), "may not look")
		_, err = admin.SetACL("/job", zk.WorldACL(zk.PermAll), -1)
		require.NoError(t, err)
		status(200, q.String(), "holds on")

		w.release(h)
		status(412, q.String(), "released")
		require.NoError(t, w.srv.Delete("/job"))
		status(412, q.String(), "no root")
		w.acquire(m)
		status(412, q.String(), "another root")
		_ = s.Close()
		status(503, q.String(), "closed")
	})
}

// I6: during an outage each request gets a response, and none waits for longer than the bound.
func TestVirtual_Gate_Outage_EachRequestIsAnswered(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		g := gate(w.connect(""), zkfence.ParseExclusive)
		text := w.acquire(w.mutex("/job")).Sequencer().String()
		for _, outage := range []func(){w.srv.Freeze, w.srv.Stop} {
			outage()
			began := time.Now()
			var all sync.WaitGroup
			var answers [100]int
			for i := range answers {
				all.Go(func() { answers[i] = post(g, "/job", text) })
			}
			all.Wait()
			require.LessOrEqual(t, time.Since(began), bound)
			for _, status := range answers {
				require.Equal(t, 503, status)
			}
		}
	})
}

// A token that the ensemble has not confirmed raises no mark, even if there is one to compare with.
func TestVirtual_Gate_Lie_DoesNotLockTheHolderOut(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		g := gate(w.connect(""), zkfence.ParseExclusive)
		q := w.acquire(w.mutex("/job")).Sequencer()
		require.Equal(t, 200, post(g, "/job", q.String()))
		for _, token := range []int64{math.MaxInt64, q.Token + 1} {
			lie := q
			lie.Token = token
			require.Equal(t, 400, post(g, "/job", lie.String()))
			require.Equal(t, 200, post(g, "/job", q.String()))
		}
	})
}

// A hold is checked once. Its later requests cost the ensemble nothing, and do not depend on an
// outage.
func TestVirtual_Gate_Check_OncePerHold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		s, m := w.connect(""), w.mutex("/job")
		g := gate(s, zkfence.ParseExclusive)
		for range 3 {
			h := w.acquire(m)
			w.srv.ResetRequests()
			for range 10 {
				require.Equal(t, 200, post(g, "/job", h.Sequencer().String()))
			}
			require.Equal(t, 1, w.srv.Requests().Of(s.Stats().SessionID, zktest.Multi))
			w.release(h)
		}
	})
}

// Permits have no order, and readers none among each other: the older of two holds is as valid.
func TestVirtual_Gate_HoldsBesideEachOther(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		sem, err := zklock.NewSemaphore(w.connect(""), "/sem", 3)
		require.NoError(t, err)
		rw, err := zklock.NewRWMutex(w.connect(""), "/rw")
		require.NoError(t, err)
		rw2, err := zklock.NewRWMutex(w.connect(""), "/rw")
		require.NoError(t, err)
		g := gate(w.connect(""), zkfence.Parse)
		for path, locks := range map[string][2]zklock.Lock{"/sem": {sem.Permits(1), sem.Permits(2)}, "/rw": {rw.ReadLock(), rw2.ReadLock()}} {
			a, b := w.acquire(locks[0]), w.acquire(locks[1])
			for _, h := range []*zklock.Hold{b, a, b} {
				require.Equal(t, 200, post(g, path, h.Sequencer().String()), path)
			}
			w.release(a)
			require.Equal(t, 200, post(g, path, b.Sequencer().String()), path)
			if path == "/sem" {
				require.Equal(t, 412, post(g, path, a.Sequencer().String()), "each request with permits is asked about")
			}
			w.release(b)
		}
	})
}

// Readers have no order among each other, so the Guard can only decide that no writer has been
// admitted since a reader.
func TestVirtual_Gate_Check_OfReaders(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		s := w.connect("")
		g := gate(s, zkfence.Parse)
		lock := func() *zklock.RWMutex {
			rw, err := zklock.NewRWMutex(w.connect(""), "/rw")
			require.NoError(t, err)
			return rw
		}
		asked := func(want int, h *zklock.Hold, what string) {
			t.Helper()
			w.srv.ResetRequests()
			for range 3 {
				require.Equal(t, 200, post(g, "/rw", h.Sequencer().String()))
			}
			require.Equal(t, want, w.srv.Requests().Of(s.Stats().SessionID, zktest.Multi), what)
		}
		first := w.acquire(lock().ReadLock())
		asked(3, first, "no writer was there")
		w.release(first)
		writer := w.acquire(lock().WriteLock())
		asked(1, writer, "new")
		w.release(writer)
		older, later := w.acquire(lock().ReadLock()), w.acquire(lock().ReadLock())
		asked(1, later, "new")
		asked(0, older, "no writer since")
		require.Equal(t, 412, post(g, "/rw", first.Sequencer().String()))
	})
}

// The gate's paths are absolute, whatever the chroot of the service's Session is.
func TestVirtual_Gate_Chroot(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		holder, service := w.connect("/team"), w.connect("/team")
		require.Equal(t, "/team", service.Chroot())
		require.Empty(t, w.connect("").Chroot())
		m, err := zklock.NewMutex(holder, "/job")
		require.NoError(t, err)
		text := w.acquire(m).Sequencer().String()
		require.Equal(t, 200, post(gate(service, zkfence.ParseExclusive), "/team/job", text))
		require.Equal(t, 200, post(gate(w.connect(""), zkfence.ParseExclusive), "/team/job", text))
		require.Equal(t, 400, post(gate(w.connect("/tea"), zkfence.ParseExclusive), "/team/job", text), "not below its chroot")
		require.Equal(t, 400, post(gate(service, zkfence.ParseExclusive), "/job", text), "another path")
	})
}
