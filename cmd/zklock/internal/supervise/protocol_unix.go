//go:build linux || darwin

package supervise

// The messages between zklock and its guardian: one JSON object a line, over a socket pair. Each
// has one end, and no other process has a copy. So the end of file means that the process at the
// other end has ended.

import (
	"encoding/json"
	"net"
	"os"
	"strings"
	"time"
)

// order is a message of zklock. One field is set.
type order struct {
	Will   *will       `json:",omitempty"` // to be carried out if zklock is killed; replaces the previous one
	Start  *startOrder `json:",omitempty"`
	Go     *limits     `json:",omitempty"` // zklock knows the command's group: the started process may become the command, until these limits
	Limits *limits     `json:",omitempty"`
	End    bool        `json:",omitempty"` // zklock was asked to end: do not wait for processes that the command leaves running
	Kill   bool        `json:",omitempty"` // a second SIGINT: kill all that came from the command
	Alone  bool        `json:",omitempty"` // no process could resume the command: it is continued, and stops no more
	Stops  bool        `json:",omitempty"` // zklock stops, because the leader did; any other order means that it runs again
	Reap   bool        `json:",omitempty"` // no signal will be sent to the group any more: its number may be given back
}

// will is for the guardian's program when zklock was killed.
type will struct {
	Process int    // the process on whose death it is carried out: zklock
	Data    []byte // for the program; empty if there is nothing to do
}

// startOrder has the guardian start the process that becomes the command.
type startOrder struct {
	Program, Argv, Env words
	Name               string        // of what is held, for messages
	KillAfter          time.Duration // for processes that the command leaves running
	Leftovers          Leftovers
	Group              int // zklock's process group
}

// words are arguments and variables of a program. They need not be UTF-8, so JSON would change
// them. They have no NUL.
type words []byte

func wordsOf(s ...string) words   { return words(strings.Join(s, "\x00")) }
func (w words) strings() []string { return strings.Split(string(w), "\x00") }

// report is a message of the guardian. One field is set.
type report struct {
	Ready   bool   `json:",omitempty"` // waiting for the start order
	Started int    `json:",omitempty"` // the process that waits for Go: its id, which is its group's too
	Running bool   `json:",omitempty"` // it has become the command, or has ended: a signal reaches no code of ours
	Failed  string `json:",omitempty"` // the command was not started
	Stopped int    `json:",omitempty"` // the leader was, by this signal
	Ending  bool   `json:",omitempty"` // Term has come, and SIGTERM was sent
	Left    string `json:",omitempty"` // the leader has ended; the processes that it left running, and the action that follows
	Ended   bool   `json:",omitempty"` // the leader waits to be reaped, and nothing else should be alive
	Status  *int   `json:",omitempty"` // after Reap: the leader's wait status; nothing is left
}

// wire is one end of the socket pair. Messages arrive on in, which closes at the end of file.
type wire[In, Out any] struct {
	conn net.Conn
	in   chan In
	out  chan Out
}

// newWire takes ownership of the descriptor.
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
			_ = e.Encode(v) // the other process may have ended, which its end of file shows
		}
	}()
	return w, nil
}

// send does not wait for a reader that is stopped: zklock and the guardian both act without the
// other. It returns false, and drops v, when too many messages are unread.
func (w *wire[In, Out]) send(v Out) bool {
	select {
	case w.out <- v:
		return true
	default:
		return false
	}
}

// close ends sending and receiving. Unread messages are lost.
func (w *wire[In, Out]) close() {
	_ = w.conn.Close()
	close(w.out)
}
