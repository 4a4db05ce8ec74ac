package command

// What zklock and its guardian say. It is written beside the work: a stderr that nobody reads holds up no lock, no limit and
// no signal.

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/zklock/zklock/internal/supervise"
)

// stderr is this process's: for the guardian, too. Only what becomes the command writes to os.Stderr itself.
var stderr = sync.OnceValue(func() supervise.Output {
	return newAsideWriter(&redrawing{w: os.Stderr, foreground: redraws, width: terminalColumns})
})

// exit ends the process. What was said comes first, as far as it is read.
func exit(code int) {
	stderr().Flush()
	os.Exit(code)
}

// terminalColumns is the width of the terminal on stderr.
func terminalColumns() int { return supervise.Width(os.Stderr) }

// redraws says whether a line on stderr can be written over: on a terminal that can do that, and not between what others write there, as
// a zklock in the background would.
func redraws() bool {
	kind := os.Getenv("TERM")
	return kind != "" && kind != "dumb" && supervise.InForeground(os.Stderr)
}

const eraseLine = "\r\x1b[K"

// redrawing writes lines, and one that is written over: a text that begins with \r and has no line end. The next such text takes its
// place, an empty one takes it away, and a line takes it away first.
type redrawing struct {
	w          io.Writer
	foreground func() bool
	width      func() int
	drawn      bool
}

func (r *redrawing) Write(text []byte) (int, error) {
	var out bytes.Buffer
	if r.drawn && r.foreground() { // else a shell has written below it
		out.WriteString(eraseLine)
	}
	line, over := bytes.CutPrefix(text, []byte("\r"))
	r.drawn = over && len(line) > 0
	if over {
		var shown bytes.Buffer
		_, _ = printable{&shown}.Write(bytes.Map(inOneRow, line))
		out.WriteString(cut(shown.String(), r.width()-1)) // in the last column some terminals begin the next line
	} else {
		_, _ = printable{&out}.Write(line)
	}
	if _, err := r.w.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(text), nil
}

// inOneRow has a space for what printable leaves and would move to another row or column.
func inOneRow(r rune) rune {
	if r == '\n' || r == '\t' {
		return ' '
	}
	return r
}

// cut shortens a text to so many columns. A character that is not ASCII may take two.
func cut(text string, columns int) string {
	used, fits := 0, 0 // fits is how much of it leaves room for the mark
	for i, r := range text {
		if used+2 <= columns {
			fits = i
		}
		if used++; r >= utf8.RuneSelf {
			used++
		}
		if used > columns {
			return text[:fits] + "…"
		}
	}
	return text
}

// mostColumns is how many columns a text takes, as cut counts them.
func mostColumns(text string) (n int) {
	for _, r := range text {
		if n++; r >= utf8.RuneSelf {
			n++
		}
	}
	return n
}

// formatStderr has the command and all that it calls write to stderr as --log-format wants it.
func formatStderr(c *cobra.Command) error {
	f := c.Flags().Lookup("log-format")
	switch {
	case f == nil || f.Value.String() == logText:
		return nil
	case f.Value.String() == logJSON:
		c.Root().SetErr(jsonWriter{c.ErrOrStderr()})
		return nil
	}
	return exitf(exitUsage, "--log-format %q: give %s or %s", f.Value, logText, logJSON)
}

const (
	logText = "text"
	logJSON = "json"
)

// jsonWriter writes each line of zklock's own as a JSON object. What the session logs is that
// already.
type jsonWriter struct{ w io.Writer }

func (j jsonWriter) Write(text []byte) (int, error) {
	if bytes.HasPrefix(text, []byte("{")) {
		return j.w.Write(text)
	}
	return len(text), j.log(slog.LevelInfo, string(text))
}

func (j jsonWriter) log(level slog.Level, text string) error {
	record := slog.NewRecord(time.Now(), level, strings.TrimSpace(text), 0)
	return slog.NewJSONHandler(j.w, nil).Handle(context.Background(), record)
}

// Flush is for supervise.Output.
func (j jsonWriter) Flush() {
	if out, ok := j.w.(supervise.Output); ok {
		out.Flush()
	}
}

// writeError writes why zklock ends.
func writeError(w io.Writer, text string) {
	if j, is := w.(jsonWriter); is {
		_ = j.log(slog.LevelError, text)
		return
	}
	fmt.Fprintln(w, text)
}

// flushWithin is how long Flush waits for a reader.
const flushWithin = 500 * time.Millisecond

// asideWriter takes lines and never waits: a goroutine writes them. While 256 wait, new ones are dropped, and the next line
// says how many.
type asideWriter struct {
	said    chan saying
	dropped atomic.Int64 // since the last that was taken
}

type saying struct {
	missing int64 // so many were dropped before it
	text    []byte
	written chan struct{} // closed when it is written; nil if nobody asks
}

// newAsideWriter returns when its goroutine has a thread of its own: to write starts none.
func newAsideWriter(w io.Writer) *asideWriter {
	a := &asideWriter{said: make(chan saying, 256)}
	ready := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		close(ready)
		for s := range a.said {
			if s.missing > 0 {
				_, _ = fmt.Fprintf(w, "zklock: lines that nobody read in time are missing here: %d\n", s.missing)
			}
			if len(s.text) > 0 {
				_, _ = w.Write(s.text) // to one who is gone
			}
			if s.written != nil {
				close(s.written)
			}
		}
	}()
	<-ready
	return a
}

// Write takes a line, or drops it. It returns no error. What is soon written over takes no room from lines.
func (a *asideWriter) Write(text []byte) (int, error) {
	if len(text) > 1 && text[0] == '\r' && len(a.said) >= cap(a.said)/2 {
		return len(text), nil
	}
	s := saying{missing: a.dropped.Swap(0), text: bytes.Clone(text)}
	select {
	case a.said <- s:
	default:
		a.dropped.Add(s.missing + 1)
	}
	return len(text), nil
}

// Flush waits until all that was taken is written, but not long for a reader that does not read.
func (a *asideWriter) Flush() {
	s := saying{missing: a.dropped.Swap(0), written: make(chan struct{})}
	limit := time.After(flushWithin)
	select {
	case a.said <- s:
	case <-limit:
		a.dropped.Add(s.missing)
		return
	}
	select {
	case <-s.written:
	case <-limit:
	}
}
