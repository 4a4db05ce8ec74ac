package demo

import (
	"encoding/json"
	"io"
	"sync"
	"time"
)

// Kind is what an Event says happened.
type Kind string

const (
	// Told by a worker about itself.
	Waiting  Kind = "waiting"  // in the queue for the lock
	Granted  Kind = "granted"  // it holds; with the token
	Wrote    Kind = "wrote"    // the resource took a write
	Checked  Kind = "checked"  // it has seen that it holds, and is about to write
	Refused  Kind = "refused"  // the resource refused a write
	Lost     Kind = "lost"     // it was told that it lost the lock
	Released Kind = "released" // it has stopped working, and gives the lock back
	Failed   Kind = "failed"   // it cannot go on

	// Done to a worker by the demo.
	Started   Kind = "started"
	Killed    Kind = "killed"    // SIGKILL
	Cut       Kind = "cut"       // nothing gets through to the servers any more
	Healed    Kind = "healed"    // its connections work again
	Stopped   Kind = "stopped"   // SIGSTOP
	Continued Kind = "continued" // SIGCONT
	Ended     Kind = "ended"     // the process, when it was asked to
)

// Event is something that happened to a worker. All processes run on one host, so one clock gives all times.
type Event struct {
	At    time.Time `json:"at"`
	Who   string    `json:"who"`
	Kind  Kind      `json:"kind"`
	Token int64     `json:"token,omitempty"`
	Text  string    `json:"text,omitempty"`
}

// reporter writes a worker's events, one line each.
type reporter struct {
	who string
	mu  sync.Mutex
	w   io.Writer
}

func (r *reporter) report(at time.Time, kind Kind, token int64, text string) {
	line, err := json.Marshal(Event{At: at, Who: r.who, Kind: kind, Token: token, Text: text})
	if err != nil {
		panic(err) // there is nothing in an Event that has no JSON
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = r.w.Write(append(line, '\n')) // nobody reads any more: then stdin has ended, too, and so does the worker
}
