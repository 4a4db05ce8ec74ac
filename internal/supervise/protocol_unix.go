//go:build linux || darwin

package supervise

// What zklock and its guardian say to each other: one JSON object a line, over a socket pair. Each holds one end, and nobody
// else has a copy of either. So the end of file says that the other is gone.

import (
	"encoding/json"
	"net"
	"os"
	"strings"
	"time"
)

// order is what zklock says. One field is set.
type order struct {
	Will   *will       `json:",omitempty"` // what is to be done should zklock be killed; replaces the one before
	Start  *startOrder `json:",omitempty"`
	Go     *limits     `json:",omitempty"` // zklock knows the command's group: what was started may become the command, until then
	Limits *limits     `json:",omitempty"`
	End    bool        `json:",omitempty"` // zklock was asked to end: do not wait for what the command leaves running
	Kill   bool        `json:",omitempty"` // a second SIGINT: kill all that came from the command
	Alone  bool        `json:",omitempty"` // nobody could resume the command: it is continued, and stops no more
	Stops  bool        `json:",omitempty"` // zklock stops, because the leader did; any other order says that it runs again
	Reap   bool        `json:",omitempty"` // no signal will be sent to the group any more: its number may be given back
}

// will is what the program of the guardian does when zklock was killed.
type will struct {
	Process int    // whose death it is for: zklock's
	Data    []byte // for the program; nothing if there is nothing to do
}

// startOrder has the guardian start what becomes the command.
type startOrder struct {
	Program, Argv, Env words
	Name               string        // of what is held, for messages
	KillAfter          time.Duration // for what the command leaves running
	Leftovers          Leftovers
	Group              int // zklock's process group
}

// words are arguments and variables of a program. They need not be UTF-8, so JSON would change them. They hold no NUL.
type words []byte

func wordsOf(s ...string) words   { return words(strings.Join(s, "\x00")) }
func (w words) strings() []string { return strings.Split(string(w), "\x00") }

// report is what the guardian says. One field is set.
type report struct {
	Ready   bool   `json:",omitempty"` // waiting for the start order
	Started int    `json:",omitempty"` // the process that waits for Go: its id, which is its group's too
	Running bool   `json:",omitempty"` // it has become the command, or has ended: a signal finds no code of ours
	Failed  string `json:",omitempty"` // the command was not started
	Stopped int    `json:",omitempty"` // the leader was, by this signal
	Ending  bool   `json:",omitempty"` // Term has come, and SIGTERM was sent
	Left    string `json:",omitempty"` // the leader has ended; what it left running, and what is done about it
	Ended   bool   `json:",omitempty"` // the leader waits to be reaped, and nothing else should be alive
	Status  *int   `json:",omitempty"` // after Reap: the leader's wait status; nothing is left
}

// wire is one end of the socket pair. What comes in arrives on in, which closes at the end of file.
type wire[In, Out any] struct {
	conn net.Conn
	in   chan In
	out  chan Out
}

// newWire takes the descriptor over.
func newWire[In, Out any](fd int) (*wire[In, Out], error) {
	f := os.NewFile(uintptr(fd), "guardian")
	conn, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		return nil, err
	}
	w := &wire[In, Out]{conn: conn, in: make(chan In, 16), out: make(chan Out, 64)}
	go func() {
		defer close(w.in)
		d := json.NewDecoder(conn)
		for {
			var v In
			if d.Decode(&v) != nil {
				return
			}
			w.in <- v
		}
	}()
	go func() {
		e := json.NewEncoder(conn)
		for v := range w.out {
			_ = e.Encode(v) // to one who is gone; the end of file says so
		}
	}()
	return w, nil
}

// send does not wait for a reader that is stopped: zklock and the guardian both act without the other. It returns
// false, and forgets v, when very much waits to be read.
func (w *wire[In, Out]) send(v Out) bool {
	select {
	case w.out <- v:
		return true
	default:
		return false
	}
}

// close is the end of sending and receiving. What was not read yet is lost.
func (w *wire[In, Out]) close() {
	_ = w.conn.Close()
	close(w.out)
}
