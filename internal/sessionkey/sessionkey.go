// Package sessionkey has what it takes to end a Session's ZooKeeper session from another process. The command's guardian
// does that when zklock was killed. The package is internal, because a program that has the key can take the session over.
package sessionkey

import (
	"fmt"
	"io"
	"time"
)

// Key is what a client shows to a server to be taken into a ZooKeeper session.
type Key struct {
	ID       int64 // 0: there is no session
	Password Secret
	Timeout  time.Duration // as the servers granted it
	Servers  []string      // host:port
}

// Secret is bytes that nobody should read in a log: it prints as "(secret)" for every verb. As JSON it is itself.
type Secret []byte

// Format implements fmt.Formatter.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "(secret)") }
