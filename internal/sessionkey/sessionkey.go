// Package sessionkey contains all that is needed to end a Session's ZooKeeper session from another
// process. The command's guardian does that when zklock was killed. The package is internal,
// because a program that has the key can take the session over.
package sessionkey

import (
	"fmt"
	"io"
	"time"
)

// Key identifies a client to a server that resumes its ZooKeeper session.
type Key struct {
	ID       int64 // 0: no session
	Password Secret
	Timeout  time.Duration // as the servers granted it
	Servers  []string      // host:port
}

// Hidden is a key that is kept: printers that follow pointers cannot look into a closure (R71).
type Hidden func() Key

// Hide returns the key as a Hidden.
func (k Key) Hide() Hidden { return func() Key { return k } }

// Secret is bytes that no log should show: it prints as "(secret)" for every verb. Its JSON form
// contains the bytes, and so does its memory: keep a Hidden.
type Secret []byte

// Format implements fmt.Formatter.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "(secret)") }
