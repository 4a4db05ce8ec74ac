// Package eventlog writes log records without ever making its caller wait. It promises to keep
// their order, and to report how many it dropped. If a handler panics, nothing ends and no record
// is lost: that record is written to stderr. The log must not be given anything secret.
package eventlog

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// Log hands log records to a goroutine of its own. The user's handler may block (a full pipe is
// enough) or call back into the Session: neither may delay the lease's timer, the client's
// goroutines or a mutex of ours. The order is kept. While 256 records wait, new ones are dropped,
// and debug records while more than 128 do; the next record reports how many.
type Log struct {
	to      *slog.Logger
	stderr  slog.Handler // for a record with which the user's handler has panicked
	records chan slog.Record
	dropped atomic.Int64
	debugs  atomic.Bool // the user wanted debug records at the last record: creating them costs more than this check
	stop    chan struct{}
	done    chan struct{}
}

// New begins a log that writes to to. It must be closed.
func New(to *slog.Logger) *Log { return begin(to, slog.NewTextHandler(os.Stderr, nil)) }

func begin(to *slog.Logger, stderr slog.Handler) *Log {
	l := &Log{to: to, stderr: stderr, records: make(chan slog.Record, 256), stop: make(chan struct{}), done: make(chan struct{})}
	Contain(l.lookForDebugs, func(string, string) {}) // it will panic with the first record, too
	go l.run()
	return l
}

func (l *Log) lookForDebugs() { l.debugs.Store(l.to.Enabled(context.Background(), slog.LevelDebug)) }

// Contain calls a function of the user. If it panics, Contain calls panicked with the panic and the
// stack.
func Contain(f func(), panicked func(p, stack string)) {
	defer func() {
		if p := recover(); p != nil {
			panicked(fmt.Sprint(p), string(debug.Stack()))
		}
	}()
	f()
}

func (l *Log) log(level slog.Level, msg string, attrs ...any) {
	if level < slog.LevelInfo && len(l.records) > cap(l.records)/2 { // leave the capacity to important records
		if l.debugs.Load() {
			l.dropped.Add(1)
		}
		return
	}
	r := slog.NewRecord(time.Now(), level, msg, 0)
	r.Add(attrs...)
	select {
	case l.records <- r:
	default:
		l.dropped.Add(1)
	}
}

// Info logs a record of that level.
func (l *Log) Info(msg string, attrs ...any) { l.log(slog.LevelInfo, msg, attrs...) }

// Warn logs a record of that level.
func (l *Log) Warn(msg string, attrs ...any) { l.log(slog.LevelWarn, msg, attrs...) }

// Error logs a record of that level.
func (l *Log) Error(msg string, attrs ...any) { l.log(slog.LevelError, msg, attrs...) }

// Debug logs a record of that level. It calls attrs only if the record is wanted.
func (l *Log) Debug(msg string, attrs func() []any) {
	if l.debugs.Load() {
		l.log(slog.LevelDebug, msg, attrs()...)
	}
}

// Printf logs the ZooKeeper client's own lines, at debug level.
func (l *Log) Printf(format string, args ...any) {
	l.log(slog.LevelDebug, "zk: "+fmt.Sprintf(format, args...))
}

func (l *Log) run() {
	defer close(l.done)
	for {
		select {
		case r := <-l.records:
			l.write(r)
		case <-l.stop:
			for len(l.records) > 0 {
				l.write(<-l.records)
			}
			return
		}
	}
}

func (l *Log) write(r slog.Record) {
	Contain(func() {
		l.lookForDebugs()
		if !l.to.Enabled(context.Background(), r.Level) {
			return
		}
		if n := l.dropped.Swap(0); n > 0 {
			r.Add("recordsDroppedBefore", n)
		}
		_ = l.to.Handler().Handle(context.Background(), r)
	}, func(p, stack string) { l.writeToStderr(r, p, stack) })
}

// writeToStderr writes a record with which the user's handler has panicked, after the panic. It
// calls nothing of that handler.
func (l *Log) writeToStderr(r slog.Record, p, stack string) {
	why := slog.NewRecord(time.Now(), slog.LevelError, "zklock: the log handler panicked; its record follows", 0)
	why.Add("panic", p, "stack", stack)
	_ = l.stderr.Handle(context.Background(), why)
	_ = l.stderr.Handle(context.Background(), r)
}

// logGrace is how long Close waits for a log handler.
const logGrace = 500 * time.Millisecond

// Close waits until everything is written, but not for a handler that blocks.
func (l *Log) Close() {
	close(l.stop)
	select {
	case <-l.done:
	case <-time.After(logGrace):
	}
}
