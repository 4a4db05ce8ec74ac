package eventlog

// These tests attack the log with a handler that blocks (dropped records are counted) and with one
// that panics (no record is lost).

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// gated is a handler that blocks until its gate is open, and counts.
type gated struct {
	slog.Handler
	gate    chan struct{}
	written []string
	dropped int64
}

func (g *gated) Enabled(_ context.Context, level slog.Level) bool {
	return g.Handler.Enabled(context.Background(), level)
}

func (g *gated) Handle(_ context.Context, r slog.Record) error {
	<-g.gate
	g.written = append(g.written, r.Message)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "recordsDroppedBefore" {
			g.dropped += a.Value.Int64()
		}
		return true
	})
	return nil
}

// F55: each wanted record is written or counted, whatever its level; an unwanted record is neither.
func TestLog_DroppedLinesAreCounted(t *testing.T) {
	for _, c := range []struct {
		name          string
		level         slog.Level
		debugs, warns int
		room          int // for the lines that wait beside the one that blocks
	}{
		{"debug lines have half of the room", slog.LevelDebug, 250, 0, 129},
		{"all others have it all", slog.LevelDebug, 0, 1000, 256},
		{"debug lines leave room for others", slog.LevelDebug, 250, 50, 129 + 50},
		{"debug lines that nobody wants are not missing", slog.LevelWarn, 250, 50, 50},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &gated{Handler: slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: c.level}), gate: make(chan struct{})}
				l := New(slog.New(g))
				l.Warn("the first blocks")
				synctest.Wait()
				for range c.debugs {
					l.Debug("debug", func() []any { return nil })
				}
				for range c.warns {
					l.Warn("warn")
				}
				close(g.gate)
				synctest.Wait()
				l.Warn("the last says what is missing")
				l.Close()
				require.Len(t, g.written, 1+c.room+1)
				wanted := c.warns
				if c.level == slog.LevelDebug {
					wanted += c.debugs
				}
				require.EqualValues(t, wanted-c.room, g.dropped)
				require.Equal(t, "the last says what is missing", g.written[len(g.written)-1])
			})
		})
	}
}

// panicky is a handler that panics with some records, or whenever it is asked for the level.
type panicky struct {
	slog.Handler
	atEnabled, atHandle func() bool
}

func (p panicky) Enabled(ctx context.Context, level slog.Level) bool {
	if p.atEnabled() {
		panic("enabled")
	}
	return p.Handler.Enabled(ctx, level)
}

func (p panicky) Handle(ctx context.Context, r slog.Record) error {
	if p.atHandle() {
		panic(errors.New("full"))
	}
	return p.Handler.Handle(ctx, r)
}

// F55, I6: the handler panics, with each record, with every second one, or when it is asked for the
// level. Every record is written, by the handler or to stderr, in order, and there it follows the
// panic and the stack. Close returns.
func TestLog_HandlerPanics_NothingIsLost(t *testing.T) {
	never, always := func() bool { return false }, func() bool { return true }
	for name, x := range map[string]struct {
		atEnabled, atHandle func() bool
		reason              string
		panics              int
	}{
		"each record":   {never, always, "full", 10},
		"every second":  {never, everySecond(), "full", 5},
		"at each level": {always, never, "enabled", 10},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer // both write to it, from the log's goroutine
			text := slog.NewTextHandler(&out, nil)
			l := begin(slog.New(panicky{text, x.atEnabled, x.atHandle}), text)
			for i := range 10 {
				l.Warn("line", "n", i)
			}
			l.Close()
			var panics, got []string
			for line := range strings.Lines(out.String()) {
				if strings.Contains(line, `msg="zklock: the log handler panicked; its record follows"`) {
					panics = append(panics, line)
					require.Contains(t, line, "panic="+x.reason)
					require.Contains(t, line, "eventlog_test.go")
					continue
				}
				_, rest, _ := strings.Cut(strings.TrimSpace(line), "msg=line ")
				got = append(got, rest)
			}
			require.Len(t, panics, x.panics)
			require.Equal(t, []string{"n=0", "n=1", "n=2", "n=3", "n=4", "n=5", "n=6", "n=7", "n=8", "n=9"}, got)
		})
	}
}

func everySecond() func() bool {
	n := 0
	return func() bool { n++; return n%2 == 0 }
}
