//go:build linux || darwin

package main

// What zklock and its guardian say to each other: a JSON object a line, over a socket pair of which each holds one
// end and nobody else a copy, so that the end of file says that the other is gone.

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"time"
)

// order is what zklock says. One field is set.
type order struct {
	Start  *startOrder `json:",omitempty"`
	Limits *limits     `json:",omitempty"`
	Reap   bool        `json:",omitempty"` // no signal will be sent to the group any more: its number may be given back
}

// startOrder has the guardian start the command.
type startOrder struct {
	Program    string
	Argv, Env  []string
	Lock       string        // for messages
	Foreground bool          // make the command's group the terminal's foreground group
	StopOnTTOU bool          // SIGTTOU has its default meaning for the command
	KillAfter  time.Duration // for what the command leaves behind
	Limits     limits
}

// report is what the guardian says. One field is set.
type report struct {
	Ready     bool   `json:",omitempty"` // waiting for the start order
	Started   int    `json:",omitempty"` // the command's process id, which is its group's too
	Failed    string `json:",omitempty"` // the command was not started
	Stopped   int    `json:",omitempty"` // by this signal
	Continued bool   `json:",omitempty"`
	Ending    bool   `json:",omitempty"` // Term has come, and SIGTERM was sent
	Ended     bool   `json:",omitempty"` // nothing of the group is alive, and its leader waits to be reaped
	Status    *int   `json:",omitempty"` // the leader's wait status, after Reap
}

// wire is one end of the socket pair. What comes in arrives on in, which closes at the end of file.
type wire[In, Out any] struct {
	conn net.Conn
	in   chan In
}

// newWire takes the descriptor over.
func newWire[In, Out any](fd int) (*wire[In, Out], error) {
	f := os.NewFile(uintptr(fd), "guardian")
	conn, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		return nil, err
	}
	w := &wire[In, Out]{conn: conn, in: make(chan In, 16)}
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
	return w, nil
}

// send does not wait for a reader that is stopped and lets the socket fill up: zklock and the guardian both act without
// the other.
func (w *wire[In, Out]) send(v Out) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_ = w.conn.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
	n, err := w.conn.Write(append(b, '\n'))
	if err != nil && n > 0 {
		_ = w.conn.Close() // half a line: nothing after it would be understood
		return io.ErrShortWrite
	}
	return err
}

func (w *wire[In, Out]) close() { _ = w.conn.Close() }
