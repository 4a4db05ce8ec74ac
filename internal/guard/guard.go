// Package guard is a Session's side of the guard: a process on the same host that ends the
// ZooKeeper sessions of processes that have died. A Session keeps a connection to the guard's Unix
// socket, and sends each ZooKeeper session before that has a node. The end of the connection and
// the death of the process together prove to the guard that nothing uses the session any more
// (cmd/zklock/internal/watch).
//
// The package promises that no call waits longer than 100 ms for the guard, and that a process
// killed after Opened has returned has sent its session, if a guard was connected.
package guard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/zklock/zklock/internal/fscall"
	"github.com/zklock/zklock/internal/secret"
	"github.com/zklock/zklock/internal/sessionkey"
)

// EnvSocket is the variable with the path of the guard's socket.
const EnvSocket = "ZKLOCK_GUARD"

// Message is a message to the guard, which is one line of JSON. One field is set.
type Message struct {
	Session *sessionkey.Key `json:",omitempty"` // to be ended when the process is dead
	Over    int64           `json:",omitempty"` // the id of a session that the servers have ended
	Bye     bool            `json:",omitempty"` // the Session is closed: the remaining sessions may be ended at once
}

// Welcome is the only message of a guard. It has accepted the connection, and can observe the death
// of the process.
const Welcome = "ready\n"

const (
	retry       = time.Second
	writeWithin = 100 * time.Millisecond // a guard that is stopped reads nothing, and its socket may be full
	maxSessions = 16                     // the latest ones, that no server has confirmed to have ended
)

// Client is a Session's connection to the guard. Its methods may be called concurrently, and do
// nothing on a nil Client.
type Client struct {
	path    string
	changed func(err error)
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	done    chan struct{}

	reported *bool // whether a guard was connected at the last call of changed; owned by run

	mu struct {
		sync.Mutex          // held while a line is written
		conn       net.Conn // nil without one, and after Close
		sessions   []session
	}
}

// session is a ZooKeeper session that no server has confirmed to have ended.
type session struct {
	id   int64
	line secret.Bytes // the Message
}

// Open connects to the guard at path, now and again every second while there is no connection. It
// returns nil if path is empty. changed is called with nil when a guard is connected, and with an
// error when none is any more, or at first. Open waits for the first attempt, 100 ms at most, and
// not beyond the end of ctx.
func Open(ctx context.Context, path string, changed func(err error)) *Client {
	if path == "" {
		return nil
	}
	c := &Client{path: path, changed: changed, done: make(chan struct{})}
	c.ctx, c.stop = context.WithCancel(context.Background())
	first := make(chan struct{})
	go c.run(first)
	select { // a path on a file system that hangs must not hang the Session
	case <-first:
	case <-time.After(writeWithin):
	case <-ctx.Done():
	}
	return c
}

// run closes first after the first attempt to connect.
func (c *Client) run(first chan struct{}) {
	defer close(c.done)
	for {
		conn, err := c.connect()
		if first != nil {
			close(first)
			first = nil
		}
		if conn != nil {
			err = c.await(conn)
		}
		c.report(err)
		select {
		case <-time.After(retry):
		case <-c.ctx.Done():
			return
		}
	}
}

// report calls changed at the first result, and when it differs from the previous one. Close is no
// change.
func (c *Client) report(err error) {
	if c.ctx.Err() != nil {
		return
	}
	if is := err == nil; c.reported == nil || *c.reported != is {
		c.reported = &is
		c.changed(err)
	}
}

// connect connects, and sends all sessions. Connecting to a Unix socket does not wait for the
// process that listens, but the path may be on a file system that hangs.
func (c *Client) connect() (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(c.ctx, retry, fscall.ErrSlow)
	defer cancel()
	conn, err := fscall.Do(ctx, c.path, func() (net.Conn, error) { return net.DialTimeout("unix", c.path, retry) },
		func(late net.Conn) { _ = late.Close() })
	if err != nil {
		return nil, err
	}
	if err := checkListener(conn.(*net.UnixConn)); err != nil {
		_ = conn.Close()
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	c.mu.conn = conn
	for _, s := range c.mu.sessions {
		c.sendLocked(s.line.Reveal())
	}
	return conn, nil
}

// await waits until the connection ends, and reports meanwhile whether the guard has accepted it. A
// guard that is stopped accepts it later.
func (c *Client) await(conn net.Conn) error {
	welcome := make([]byte, len(Welcome))
	_ = conn.SetReadDeadline(time.Now().Add(retry))
	n, err := conn.Read(welcome)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.report(errors.New("the guard does not respond"))
		_ = conn.SetReadDeadline(time.Time{})
		n, err = conn.Read(welcome)
	}
	if string(welcome[:n]) == Welcome {
		c.report(nil)
		_ = conn.SetReadDeadline(time.Time{})
		_, err = conn.Read(welcome)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.conn == conn {
		c.dropLocked()
	}
	return fmt.Errorf("the guard has ended the connection: %w", cmp.Or(err, io.EOF))
}

func (c *Client) dropLocked() {
	if c.mu.conn != nil {
		_ = c.mu.conn.Close()
		c.mu.conn = nil
	}
}

// sendLocked closes a connection that does not take all of the line: the guard cannot read what
// follows a part of a line.
func (c *Client) sendLocked(line []byte) {
	if c.mu.conn == nil {
		return
	}
	_ = c.mu.conn.SetWriteDeadline(time.Now().Add(writeWithin))
	if _, err := c.mu.conn.Write(line); err != nil {
		c.dropLocked()
	}
}

// Opened adds a new ZooKeeper session.
func (c *Client) Opened(key sessionkey.Key) {
	if c == nil {
		return
	}
	line := encode(Message{Session: &key})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.sessions = append(c.mu.sessions, session{key.ID, secret.Of(line)})
	if n := len(c.mu.sessions); n > maxSessions {
		c.mu.sessions = slices.Delete(c.mu.sessions, 0, n-maxSessions)
	}
	c.sendLocked(line)
}

// Over removes a session that the servers have ended.
func (c *Client) Over(id int64) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.sessions = slices.DeleteFunc(c.mu.sessions, func(s session) bool { return s.id == id })
	c.sendLocked(encode(Message{Over: id}))
}

// Close ends the connection. The guard then ends the sessions that no server has confirmed to have
// ended, if it still has the connection.
func (c *Client) Close() {
	if c == nil {
		return
	}
	c.mu.Lock()
	c.stop() // a connection that was opened before gets the sessions, and this message
	c.sendLocked(encode(Message{Bye: true}))
	c.dropLocked()
	c.mu.Unlock()
	<-c.done
}

func encode(m Message) []byte {
	line, err := json.Marshal(m)
	if err != nil {
		panic("zklock: " + err.Error()) // all its fields have a JSON form
	}
	return append(line, '\n')
}
