package fence_test

// These tests attack the gate and its HTTP middleware: sent headers, admitted requests, and the
// text of a rejection.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/fence"
)

// parse parses the tests' sequencers: "exclusive 17 /locks/a".
func parse(text string) (c fence.Claim, err error) {
	var mode string
	if _, err = fmt.Sscanf(text, "%s %d %s", &mode, &c.Token, &c.Resource); err != nil {
		return c, fmt.Errorf("rubbish: %q", text)
	}
	c.Shared = mode == "shared"
	return c, nil
}

type sequencerKey struct{}

func with(ctx context.Context, text string) context.Context {
	return context.WithValue(ctx, sequencerKey{}, text)
}

func sequencer(ctx context.Context) (string, bool) {
	text, ok := ctx.Value(sequencerKey{}).(string)
	return text, ok
}

// service counts the requests that reach it, behind a gate.
type service struct {
	*httptest.Server
	worked int
}

func serve(t *testing.T, gate *fence.Gate) *service {
	s := &service{}
	work := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { s.worked++ })
	s.Server = httptest.NewServer(gate.Handler(work, func(r *http.Request) (string, bool) {
		return "/locks" + r.URL.Path, r.Method != http.MethodGet
	}))
	t.Cleanup(s.Close)
	return s
}

// send posts under a sequencer, or without one if it is "".
func (s *service) send(t *testing.T, method, sequencerText string) (status int, body string) {
	t.Helper()
	ctx := t.Context()
	if sequencerText != "" {
		ctx = with(ctx, sequencerText)
	}
	client := http.Client{Transport: &fence.Transport{Sequencer: sequencer}}
	r, err := http.NewRequestWithContext(ctx, method, s.URL+"/a", strings.NewReader("work"))
	require.NoError(t, err)
	resp, err := client.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Empty(t, r.Header, "the caller's request was changed")
	return resp.StatusCode, string(text)
}

func TestHTTP_LateOnesAreRefused(t *testing.T) {
	s := serve(t, &fence.Gate{Guard: fence.NewGuard(fence.NewMemory(1)), Parse: parse})
	for i, row := range []struct {
		method, sequencer string
		status            int
		says              string
	}{
		{"POST", "exclusive 17 /locks/a", 200, ""},
		{"POST", "exclusive 23 /locks/a", 200, ""},
		{"POST", "exclusive 23 /locks/a", 200, ""},
		{"POST", "exclusive 17 /locks/a", 412, "fence: stale: token 17 of /locks/a comes after token 23\n"},
		{"POST", "shared 22 /locks/a", 412, "fence: stale: token 22 of /locks/a comes after token 23\n"},
		{"POST", "", 428, "fence: no sequencer: hold /locks/a, and send its sequencer\n"},
		{"POST", "nonsense", 400, "fence: no such sequencer: rubbish: \"nonsense\"\n"},
		{"POST", "exclusive 99 /locks/b", 400, "fence: no such sequencer: it is of /locks/b, and /locks/a is the lock to hold\n"},
		{"POST", "exclusive 0 /locks/a", 400, "fence: no such sequencer: token 0 of /locks/a\n"},
		{"GET", "", 200, ""}, // needs no lock
	} {
		before := s.worked
		status, body := s.send(t, row.method, row.sequencer)
		require.Equal(t, row.status, status, "request %d", i)
		require.Equal(t, row.says, body, "request %d", i)
		require.Equal(t, row.status == 200, s.worked == before+1, "request %d", i)
	}
}

// Two sequencers are rejected: neither is chosen.
func TestHTTP_TwoSequencers_AreRefused(t *testing.T) {
	s := serve(t, &fence.Gate{Guard: fence.NewGuard(fence.NewMemory(1)), Parse: parse})
	r, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/a", nil)
	require.NoError(t, err)
	r.Header[fence.Header] = []string{"exclusive 17 /locks/a", "exclusive 23 /locks/a"}
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, 400, resp.StatusCode)
	require.Zero(t, s.worked)
}

// An error of the store is not shown to clients; a full memory reports that it is full.
func TestHTTP_NobodyKnows_503(t *testing.T) {
	down := errors.New("password=secret: no route to host")
	for says, store := range map[string]fence.Store{
		"fence: cannot tell whether this request is late\n":  broken{fence.NewMemory(1), down, nil},
		"fence: no room for the marks of another resource\n": fence.NewMemory(0),
	} {
		s := serve(t, &fence.Gate{Guard: fence.NewGuard(store), Parse: parse})
		status, body := s.send(t, "POST", "exclusive 17 /locks/a")
		require.Equal(t, 503, status)
		require.Equal(t, says, body)
		require.Zero(t, s.worked)
	}
}

// The check runs before a token is recorded, receives whether the guard has a mark that the token
// would not raise, and decides.
func TestGate_Check(t *testing.T) {
	var asked []string
	var answer error
	store := fence.NewMemory(1)
	s := serve(t, &fence.Gate{Guard: fence.NewGuard(store), Parse: parse, Check: func(_ context.Context, lock, text string, known bool) error {
		asked = append(asked, fmt.Sprint(lock, " ", text, " ", known))
		return answer
	}})
	marks := func() fence.Marks {
		m, err := store.Load(t.Context(), "/locks/a")
		require.NoError(t, err)
		return m
	}
	for _, row := range []struct {
		answer error
		text   string
		status int
		asked  string // by known, "" if not
		mark   int64
	}{
		{fmt.Errorf("%w: the hold is over", fence.ErrStale), "exclusive 17 /locks/a", 412, "false", 0},
		{fmt.Errorf("%w: another ensemble's", fence.ErrInvalid), "exclusive 18 /locks/a", 400, "false", 0},
		{errors.New("not connected"), "exclusive 19 /locks/a", 503, "false", 0},
		{nil, "exclusive 20 /locks/a", 200, "false", 20},
		{nil, "exclusive 20 /locks/a", 200, "true", 20},
		{nil, "exclusive 21 /locks/a", 200, "false", 21}, // raises the mark
		{nil, "exclusive 20 /locks/a", 412, "", 21},      // costs no request
		{nil, "exclusive 21 /locks/a", 200, "true", 21},
		{errors.New("not connected"), "exclusive 99 /locks/a", 503, "false", 21},
		{errors.New("not connected"), "exclusive 21 /locks/a", 503, "true", 21},
		{nil, "shared 30 /locks/a", 200, "false", 21},
		{nil, "shared 30 /locks/a", 200, "true", 21},
		{nil, "shared 29 /locks/a", 200, "true", 21},
	} {
		asked, answer = nil, row.answer
		status, _ := s.send(t, "POST", row.text)
		require.Equal(t, row.status, status, row.text)
		if row.asked == "" {
			require.Empty(t, asked)
		} else {
			require.Equal(t, []string{"/locks/a " + row.text + " " + row.asked}, asked)
		}
		require.Equal(t, row.mark, marks().Exclusive, row.text)
	}
}

// A uploads, B arrives and finishes, and A's upload ends: its handler asks again before it writes.
func TestHTTP_LaterHolderDuringAnUpload_HandlerAsksAgain(t *testing.T) {
	store := fence.NewMemory(1)
	gate := &fence.Gate{Guard: fence.NewGuard(store), Parse: parse}
	saved := ""
	srv := httptest.NewServer(gate.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if err := gate.Admit(r.Context(), "/locks/a", r.Header.Values(fence.Header)); err != nil {
			fence.Refuse(w, err)
			return
		}
		saved = string(body)
	}), func(*http.Request) (string, bool) { return "/locks/a", true }))
	defer srv.Close()
	client := http.Client{Transport: &fence.Transport{Sequencer: sequencer}}
	post := func(text string, body io.Reader) string {
		r, err := http.NewRequestWithContext(with(t.Context(), text), "POST", srv.URL, body)
		if err != nil {
			return err.Error()
		}
		resp, err := client.Do(r)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		says, _ := io.ReadAll(resp.Body)
		return fmt.Sprintf("%d %s", resp.StatusCode, says)
	}
	body, upload := io.Pipe()
	answer := make(chan string, 1)
	go func() { answer <- post("exclusive 17 /locks/a", body) }()
	_, err := upload.Write([]byte("A's"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { // A was admitted
		marks, err := store.Load(t.Context(), "/locks/a")
		return err == nil && marks.Exclusive == 17
	}, time.Minute, time.Millisecond)
	require.Equal(t, "200 ", post("exclusive 23 /locks/a", strings.NewReader("B's")))
	require.NoError(t, upload.Close())
	require.Equal(t, "412 fence: stale: token 17 of /locks/a comes after token 23\n", <-answer)
	require.Equal(t, "B's", saved)
}

// closing notices that a body was closed.
type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

// A text that a header does not carry unchanged is not sent at all.
func TestTransport_NoHeaderCarriesIt_NothingIsSent(t *testing.T) {
	s := serve(t, &fence.Gate{Guard: fence.NewGuard(fence.NewMemory(1)), Parse: parse})
	for _, text := range []string{"", " exclusive 17 /locks/a", "exclusive 17 /locks/a ", "exclusive 17\r\n/locks/a", "exclusive 17 /locks/ä", "exclusive 17 /locks/\xff"} {
		body := &closing{Reader: strings.NewReader("work")}
		r, err := http.NewRequestWithContext(with(t.Context(), text), "POST", s.URL+"/a", body)
		require.NoError(t, err)
		_, err = (&fence.Transport{Sequencer: sequencer}).RoundTrip(r)
		require.ErrorIs(t, err, fence.ErrInvalid, strconv.Quote(text))
		require.True(t, body.closed)
		r.Body = nil
		_, err = (&fence.Transport{Sequencer: sequencer}).RoundTrip(r)
		require.ErrorIs(t, err, fence.ErrInvalid)
	}
	require.Zero(t, s.worked)
}

// A custom transport sends the request.
func TestTransport_Base(t *testing.T) {
	var sent []string
	tr := &fence.Transport{Sequencer: sequencer, Base: roundTrip(func(r *http.Request) (*http.Response, error) {
		sent = append(sent, strings.Join(r.Header.Values(fence.Header), "|"))
		return nil, errors.New("no network here")
	})}
	for _, ctx := range []context.Context{with(t.Context(), "exclusive 17 /locks/a"), t.Context()} {
		r, err := http.NewRequestWithContext(ctx, "GET", "http://localhost/", nil)
		require.NoError(t, err)
		r.Header.Set(fence.Header, "the caller's")
		_, err = tr.RoundTrip(r)
		require.ErrorContains(t, err, "no network here")
	}
	require.Equal(t, []string{"exclusive 17 /locks/a", "the caller's"}, sent)
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type nowhere struct{}

func (nowhere) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// A Transport that is the base of another RoundTripper can get a request without a map for its
// headers.
func TestTransport_RequestWithoutHeaders(t *testing.T) {
	tr := &fence.Transport{Base: nowhere{}, Sequencer: func(context.Context) (string, bool) { return "x", true }}
	_, err := tr.RoundTrip((&http.Request{Method: http.MethodGet}).WithContext(t.Context()))
	require.NoError(t, err)
}
