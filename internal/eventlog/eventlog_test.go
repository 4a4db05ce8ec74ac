package eventlog

// These tests attack the log of a handler that blocks: what is dropped is counted.

import (
	"context"
	"log/slog"
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

// Each line that was wanted is written or counted, whatever its level; a line that nobody wants is neither.
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
