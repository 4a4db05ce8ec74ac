package main

// What zklock and its guardian say. It is written beside the work: a stderr that nobody reads holds up no lock, no limit and
// no signal.

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zklock/zklock/internal/supervise"
)

// stderr is this process's: for the guardian, too. Only what becomes the command writes to os.Stderr itself.
var stderr = sync.OnceValue(func() supervise.Output { return newAsideWriter(printable{os.Stderr}) })

// exit ends the process. What was said comes first, as far as it is read.
func exit(code int) {
	stderr().Flush()
	os.Exit(code)
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

// Write takes a line, or drops it. It returns no error.
func (a *asideWriter) Write(text []byte) (int, error) {
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
