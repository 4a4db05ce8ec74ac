package command

// Attacks on the line of a wait that a terminal redraws: what else is written, a narrow terminal, a
// zklock in the background.

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/zktest"
)

// shownBy is what a terminal of this width shows in the end, by its lines, of what was written to
// it.
func shownBy(t *testing.T, written string, width int) []string {
	t.Helper()
	rows, column := [][]rune{nil}, 0
	for len(written) > 0 {
		row := &rows[len(rows)-1]
		if rest, ok := strings.CutPrefix(written, "\x1b[K"); ok {
			*row, written = (*row)[:min(column, len(*row))], rest
			continue
		}
		r, size := utf8.DecodeRuneInString(written)
		written = written[size:]
		switch r {
		case '\r':
			column = 0
			continue
		case '\n':
			rows, column = append(rows, nil), 0
			continue
		}
		require.GreaterOrEqual(t, r, ' ', "a terminal would obey it")
		if column == width {
			rows, column = append(rows, nil), 0
			row = &rows[len(rows)-1]
		}
		*row = append((*row)[:column], append([]rune{r}, (*row)[min(column+1, len(*row)):]...)...)
		column++
	}
	lines := make([]string, len(rows))
	for i, row := range rows {
		lines[i] = string(row)
	}
	return lines
}

// drawing is a redrawing on a terminal of some width, for a zklock in the foreground.
func drawing(width int) (*redrawing, *bytes.Buffer) {
	var written bytes.Buffer
	return &redrawing{w: &written, foreground: func() bool { return true }, width: func() int { return width }}, &written
}

func TestRedrawing_OneLineIsWrittenOver_AndOthersStandAlone(t *testing.T) {
	r, written := drawing(40)
	show := func(text string, want ...string) {
		t.Helper()
		n, err := r.Write([]byte(text))
		require.NoError(t, err)
		require.Equal(t, len(text), n)
		require.Equal(t, want, shownBy(t, written.String(), 40))
	}
	show("\rwaiting: number 3 of 3", "waiting: number 3 of 3")
	show("\rwaiting: number 2", "waiting: number 2")
	show("zklock: a line\n", "zklock: a line", "")
	show("\rwaiting: number 1", "zklock: a line", "waiting: number 1")
	show("\r", "zklock: a line", "")
	show("\r", "zklock: a line", "")
	show("COMMAND's\n", "zklock: a line", "COMMAND's", "")
}

// What others wrote moves no cursor, and a line that is longer than the terminal is wide does not
// wrap: only its last row would go.
func TestRedrawing_FitsIntoOneRow(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("x", 39), strings.Repeat("x", 40), strings.Repeat("x", 200), strings.Repeat("é", 100), strings.Repeat("名", 100),
		"held by \x1b[2J\n\r\a", strings.Repeat("\x1b", 100), "\xff\xfe",
	} {
		for _, width := range []int{40, 3, 2, 1} {
			r, written := drawing(width)
			_, _ = r.Write([]byte("\r" + text))
			first := shownBy(t, written.String(), width)
			require.Len(t, first, 1, "%q at %d", text, width)
			if width == 40 && len(text) <= 39 && utf8.ValidString(text) && !strings.Contains(text, "\x1b") {
				require.Equal(t, text, first[0])
			}
			_, _ = r.Write([]byte("\r"))
			require.Equal(t, []string{""}, shownBy(t, written.String(), width))
		}
	}
	require.Equal(t, "名…", cut("名前前", 4))
	require.Equal(t, "ab…", cut("abcdef", 4))
	require.Equal(t, "abcd", cut("abcd", 4))
}

// On a terminal of 80 columns a wait says who holds, and since when, however long the path is.
func TestProgress_InPlace_LongPath_ReportsTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		holder := zklock.Participant{Node: "/l/lock-0000000001", Data: []byte("db1:10112"), SessionID: 1, Token: 4211, Created: time.Now().Add(-192 * time.Second), Holds: true}
		l := queueLook{holder: holder, place: 3, waiting: 3}
		for _, path := range []string{"/locks/x", "/locks/" + strings.Repeat("a-long-path/", 20) + "nightly", "/" + strings.Repeat("名", 60)} {
			r, written := drawing(80)
			o := &runOptions{path: path, stderr: r, redraws: r.foreground, columns: r.width}
			o.sayPlace(l)
			line := shownBy(t, written.String(), 80)[0]
			require.Contains(t, line, ": waiting: number 3 of 3; held by db1, pid 10112 (3m12s)")
			if strings.HasSuffix(path, "nightly") {
				require.Contains(t, line, "nightly: ", "the end of a path is what differs")
			}
			_, _ = r.Write([]byte("\r"))
			require.Equal(t, []string{""}, shownBy(t, written.String(), 80))
		}
	})
}

// After a Ctrl-Z and a bg the cursor is in the shell's line. Nothing of that goes away.
func TestRedrawing_InTheBackground_ErasesNothing(t *testing.T) {
	r, written := drawing(80)
	_, _ = r.Write([]byte("\rwaiting"))
	r.foreground = func() bool { return false }
	written.WriteString("\n$ ls")
	_, _ = r.Write([]byte("zklock: a line\n"))
	require.Equal(t, []string{"waiting", "$ lszklock: a line", ""}, shownBy(t, written.String(), 80))
}

// A terminal that nobody lets go on gets no more of the progress than leaves room for lines.
func TestAsideWriter_ProgressTakesNoRoomFromLines(t *testing.T) {
	r, w := newStopped()
	a := newAsideWriter(w)
	defer close(a.said)
	defer close(r)
	for range 1000 {
		_, _ = a.Write([]byte("\rwaiting"))
	}
	require.LessOrEqual(t, len(a.said), cap(a.said)/2)
	require.Zero(t, a.dropped.Load(), "that is no line that is missing")
}

// newStopped returns a writer that blocks until the channel is closed.
func newStopped() (chan struct{}, stopped) {
	c := make(chan struct{})
	return c, stopped{c}
}

type stopped struct{ c chan struct{} }

func (s stopped) Write(p []byte) (int, error) { <-s.c; return len(p), nil }

// On a terminal a wait is looked at more often, in one line that is gone when the wait is over. In
// the background it says a line a minute, as in a pipe.
func TestRun_Waiting_InPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := zktest.NewNetwork()
		srv := zktest.Start(t, zktest.WithNetwork(network))
		open := func() (*zklock.Session, recipe) {
			s, err := zklock.Connect(t.Context(), srv.Addr(), zklock.WithDialer(network.Dial), zklock.WithLogger(slog.New(slog.DiscardHandler)))
			require.NoError(t, err)
			t.Cleanup(func() { _ = s.Close() })
			r, err := (&runOptions{path: "/locks/x"}).recipe(s, nil)
			require.NoError(t, err)
			return s, r
		}
		_, holder := open()
		hold, err := holder.Acquire(t.Context())
		require.NoError(t, err)

		var foreground atomic.Bool
		foreground.Store(true)
		r, written := drawing(200)
		r.foreground = foreground.Load
		o := &runOptions{path: "/locks/x", stderr: r, redraws: r.foreground, columns: r.width}
		s, waiter := open()
		time.AfterFunc(35*time.Second, func() {
			synctest.Wait()
			require.Equal(t, 4, strings.Count(written.String(), "waiting: number 2 of 2"), "after half a second, and every ten")
			require.Len(t, shownBy(t, written.String(), 200), 1)
			require.Contains(t, written.String(), "(31s)")
			foreground.Store(false)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		defer cancel()
		_, err = o.acquire(ctx, s, waiter)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 4+4, strings.Count(written.String(), "waiting: number 2 of 2"), "and then every minute: %q", written)
		require.True(t, o.waited)

		foreground.Store(true)
		written.Reset()
		released := make(chan error, 1)
		time.AfterFunc(15*time.Second, func() { released <- hold.Release(t.Context()) })
		got, err := o.acquire(t.Context(), s, waiter)
		require.NoError(t, err)
		require.Equal(t, 2, strings.Count(written.String(), "waiting: number 2 of 2"))
		require.Equal(t, []string{""}, shownBy(t, written.String(), 200), "the line is gone when COMMAND starts")
		require.NoError(t, <-released)
		require.NoError(t, got.Release(t.Context()))
	})
}
