package supervise

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// desk receives the signals sent to zklock, and passes each to the handler of this stage of the
// run.
type desk struct {
	ch     chan os.Signal
	closed chan struct{}
	done   chan struct{}

	mu struct {
		sync.Mutex
		handle func(os.Signal) // called with the mutex held: quick, and no use of the desk
	}
}

// openDesk begins to receive the signals. SIGHUP and SIGINT stay ignored if they were ignored when
// zklock started, as under nohup. A Go program cannot detect that for other signals, because its
// runtime has set handlers before.
func openDesk(handle func(os.Signal)) *desk {
	d := &desk{ch: make(chan os.Signal, 64), closed: make(chan struct{}), done: make(chan struct{})}
	d.mu.handle = handle
	d.take(handledSignals...)
	go func() {
		defer close(d.done)
		for {
			select {
			case s := <-d.ch:
				d.mu.Lock()
				d.mu.handle(s)
				d.mu.Unlock()
			case <-d.closed:
				return
			}
		}
	}()
	return d
}

func (d *desk) take(sigs ...os.Signal) {
	for _, s := range sigs {
		if !signal.Ignored(s) {
			signal.Notify(d.ch, s)
		}
	}
}

// route sets the handler for all later signals. When route returns, the old handler has returned
// too.
func (d *desk) route(handle func(os.Signal)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.handle = handle
}

func (d *desk) close() {
	signal.Stop(d.ch)
	close(d.closed)
	<-d.done
}

// Ends reports whether a signal asks a program to end.
func Ends(s os.Signal) bool {
	switch s {
	case os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
		return true
	}
	return false
}

// repeats detects a signal that was sent once and arrived twice: timeout(1), for example, signals
// its child, and then the group of that child. The kernel, too, delivers a pending signal once.
type repeats map[syscall.Signal]Moment

const repeatWithin = 100 * time.Millisecond // less than a second Ctrl-C takes

// is reports whether the signal is another copy. Only signals that ask for the end are checked:
// others may be counted, and the second SIGHUP may be for another change of a configuration.
func (r repeats) is(s syscall.Signal, at Moment) bool {
	if before, ok := r[s]; ok && at.Sub(before) < repeatWithin {
		return true
	}
	if Ends(s) && s != syscall.SIGHUP {
		r[s] = at
	}
	return false
}
