package zkserver

// Ending any session on a real server, without the client that owns it.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
)

// ErrNoSession says that the server does not know the session, or makes passwords in a way of its own.
var ErrNoSession = errors.New("the server does not know the session")

// ExpireSession ends the session on the ensemble that the server at addr is part of: its ephemeral
// nodes are gone and its client is told that it expired, in milliseconds instead of a session timeout.
//
// A server wants a session's password before it closes it, and makes that from the session's id
// (ZooKeeper 3.4 to at least 3.9). So we connect as the session and close it, in one write: the
// client, whose connection this cuts, may take the session back at any moment in between. Then
// the close was not ours to make and we go again, until the server says that the session is gone.
func ExpireSession(addr string, sessionID int64) error {
	const tries = 100
	for try := range tries {
		known, err := closeAs(addr, sessionID)
		if err != nil && !(errors.Is(err, errCut) && try < tries-1) {
			return fmt.Errorf("expire session 0x%x at %s: %w", sessionID, addr, err)
		}
		if err == nil && !known {
			if try == 0 {
				return fmt.Errorf("expire session 0x%x at %s: %w", sessionID, addr, ErrNoSession)
			}
			return nil
		}
	}
	return fmt.Errorf("expire session 0x%x at %s: still there after %d tries", sessionID, addr, tries)
}

// errCut says that the server closed our connection before it said whether it knows the session: the client took it back
// at that very moment.
var errCut = errors.New("the connection was closed without an answer")

// closeAs attaches to the session and closes it, and reports whether the server knew it.
func closeAs(addr string, sessionID int64) (known bool, err error) {
	conn, err := net.DialTimeout("tcp", addr, askTimeout)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(askTimeout)); err != nil {
		return false, err
	}
	if _, err := conn.Write(attachAndClose(sessionID)); err != nil {
		return false, err
	}
	answer, err := readFrame(conn)
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		return false, fmt.Errorf("%w: %w", errCut, err)
	}
	if err != nil {
		return false, err
	}
	if len(answer) < 16 {
		return false, fmt.Errorf("connect response of %d bytes", len(answer))
	}
	if binary.BigEndian.Uint64(answer[8:16]) == 0 {
		return false, nil
	}
	// The reply to closeSession, or the end of the connection because the client was faster. Either
	// way the next round tells.
	_, _ = readFrame(conn)
	return true, nil
}

// attachAndClose is a ConnectRequest for the session and a closeSession behind it.
func attachAndClose(sessionID int64) []byte {
	const (
		opCloseSession = -11
		xid            = 1
		timeoutMillis  = 10_000
	)
	var b []byte
	b = binary.BigEndian.AppendUint32(b, 44)
	b = binary.BigEndian.AppendUint32(b, 0) // protocol version
	b = binary.BigEndian.AppendUint64(b, 0) // last zxid seen
	b = binary.BigEndian.AppendUint32(b, timeoutMillis)
	b = binary.BigEndian.AppendUint64(b, uint64(sessionID))
	password := sessionPassword(sessionID)
	b = binary.BigEndian.AppendUint32(b, uint32(len(password)))
	b = append(b, password[:]...)

	closeType := int32(opCloseSession)
	b = binary.BigEndian.AppendUint32(b, 8)
	b = binary.BigEndian.AppendUint32(b, xid)
	return binary.BigEndian.AppendUint32(b, uint32(closeType))
}

func readFrame(r io.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > 1<<20 {
		return nil, fmt.Errorf("frame of %d bytes", n)
	}
	body := make([]byte, n)
	_, err := io.ReadFull(r, body)
	return body, err
}

// sessionPassword is what the server computes: new java.util.Random(id ^ 0xB3415C00).nextBytes(16).
// Random is a linear congruential generator of 48 bits; each step gives 32, used low byte first.
func sessionPassword(sessionID int64) (password [16]byte) {
	const (
		superSecret = 0xB3415C00
		multiplier  = 0x5DEECE66D
		increment   = 0xB
		mask        = 1<<48 - 1
	)
	seed := (uint64(sessionID) ^ superSecret ^ multiplier) & mask
	for i := 0; i < len(password); i += 4 {
		seed = (seed*multiplier + increment) & mask
		binary.LittleEndian.PutUint32(password[i:], uint32(seed>>16))
	}
	return password
}
