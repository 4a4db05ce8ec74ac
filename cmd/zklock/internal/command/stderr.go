package command

// The messages of zklock and its guardian. A goroutine writes them, so an unread stderr delays no
// lock, no limit and no signal.

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

	"github.com/zklock/zklock/cmd/zklock/internal/supervise"
)

// stderr is this process's, also in the guardian. Only the process that becomes the command writes
// to os.Stderr directly.
var stderr = sync.OnceValue(func() supervise.Output {
	return newAsideWriter(&redrawing{w: os.Stderr, foreground: redraws, width: terminalColumns})
})

// exit ends the process, after its messages are written as far as they are read.
func exit(code int) {
	stderr().Flush()
	os.Exit(code)
}

func terminalColumns() int { return supervise.Width(os.Stderr) }

// redraws reports whether a line on stderr can be overwritten: the terminal supports that, and
// zklock is in its foreground. In the background it would write between the lines of other
// programs.
func redraws() bool {
	kind := os.Getenv("TERM")
	return kind != "" && kind != "dumb" && supervise.InForeground(os.Stderr)
}

// guardianWriter writes a line of the guardian with the time: the process whose log has it is dead.
type guardianWriter struct{ supervise.Output }

func guardianStderr() supervise.Output { return guardianWriter{stderr()} }

func (g guardianWriter) Write(text []byte) (int, error) {
	now := time.Now().UTC().Format("2006-01-02T15:04:05.000Z")
	_, err := fmt.Fprintf(g.Output, "zklock: %s %s", now, bytes.TrimPrefix(text, []byte("zklock: ")))
	return len(text), err
}

const eraseLine = "\r\x1b[K"

// redrawing writes lines, and one that is overwritten: a text that begins with \r and has no line
// end. The next such text replaces it, an empty one removes it, and a line removes it first.
type redrawing struct {
	w          io.Writer
	foreground func() bool
	width      func() int
	drawn      bool
}

func (r *redrawing) Write(text []byte) (int, error) {
	var out bytes.Buffer
	if r.drawn && r.foreground() { // otherwise a shell has written below it
		out.WriteString(eraseLine)
	}
	line, over := bytes.CutPrefix(text, []byte("\r"))
	r.drawn = over && len(line) > 0
	if over {
		shown := escaped(inOneRow.Replace(string(line)))
		out.WriteString(cut(shown, r.width()-1)) // in the last column some terminals begin the next line
	} else {
		out.WriteString(escaped(string(line)))
	}
	if _, err := r.w.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(text), nil
}

// inOneRow replaces by a space the characters that printable keeps and that would move to another
// row or column.
var inOneRow = strings.NewReplacer("\n", " ", "\t", " ")

// cut shortens a text to this number of columns. A character that is not ASCII may take two.
func cut(text string, columns int) string {
	used, fits := 0, 0 // fits is how much of it leaves space for the mark
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

// mostColumns returns how many columns a text takes, as cut counts them.
func mostColumns(text string) (n int) {
	for _, r := range text {
		if n++; r >= utf8.RuneSelf {
			n++
		}
	}
	return n
}

// formatStderr has the command write to stderr in the format of --log-format.
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

// jsonWriter writes each line of zklock as a JSON object. The session's log lines are JSON already.
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

// Flush implements supervise.Output.
func (j jsonWriter) Flush() {
	if out, ok := j.w.(supervise.Output); ok {
		out.Flush()
	}
}

// writeError writes the reason why zklock ends.
func writeError(w io.Writer, text string) {
	if j, is := w.(jsonWriter); is {
		_ = j.log(slog.LevelError, text)
		return
	}
	fmt.Fprintln(w, text)
}

// flushWithin is how long Flush waits for a reader.
const flushWithin = 500 * time.Millisecond

// asideWriter accepts lines and never waits: a goroutine writes them. While 256 wait, new ones are
// dropped, and the next line reports how many.
type asideWriter struct {
	said    chan saying
	dropped atomic.Int64 // since the last that was taken
}

type saying struct {
	missing int64 // how many were dropped before it
	text    []byte
	written chan struct{} // closed when it is written; nil if no caller waits
}

// newAsideWriter returns when its goroutine has a thread of its own, so that writing starts none.
func newAsideWriter(w io.Writer) *asideWriter {
	a := &asideWriter{said: make(chan saying, 256)}
	ready := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		close(ready)
		for s := range a.said {
			if s.missing > 0 {
				_, _ = fmt.Fprintf(w, "zklock: lines that were not read in time are missing here: %d\n", s.missing)
			}
			if len(s.text) > 0 {
				_, _ = w.Write(s.text) // the reader may have ended
			}
			if s.written != nil {
				close(s.written)
			}
		}
	}()
	<-ready
	return a
}

// Write accepts a line, or drops it. It returns no error. A text that is soon overwritten takes no
// space from lines.
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

// Flush waits until all accepted lines are written, but not long for a reader that does not read.
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
