package zktest

import (
	"encoding/binary"
	"io"
	"log"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/rawzk"
	"github.com/zklock/zklock/internal/wire"
)

// A server that closes a connection because a frame is too long has not read all of the frame.
// ZooKeeper shuts its side down before it closes. So the client's write succeeds, and the client
// then reads the end of the stream and no reset.
func TestClose_ClientStillSends_ReadsTheEnd(t *testing.T) {
	srv := Start(t)
	for range 20 {
		nc, err := net.Dial("tcp", srv.Addr())
		require.NoError(t, err)
		frame := binary.BigEndian.AppendUint32(nil, 1<<30)
		_, err = nc.Write(append(frame, make([]byte, 2<<20)...))
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, nc)
		nc.Close()
		require.NoError(t, err)
	}
}

// A client that never closes its side delays neither the server's stop nor the end of its test.
func TestClose_ClientKeepsItsSideOpen_StopIsImmediate(t *testing.T) {
	srv := Start(t)
	nc, err := net.Dial("tcp", srv.Addr())
	require.NoError(t, err)
	defer nc.Close()
	before := time.Now()
	srv.Stop()
	require.Less(t, time.Since(before), lingerTime)
}

// lines receives what is logged, line by line.
type lines chan string

func (l lines) Write(line []byte) (int, error) { l <- string(line); return len(line), nil }

// Close cannot end a function that blocks, so it names it.
func TestClose_HandleBlocks_IsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logged := make(lines, 10)
		log.SetOutput(logged)
		defer log.SetOutput(os.Stderr)
		n := NewNetwork()
		srv := Start(t, WithNetwork(n))
		called, let := make(chan struct{}), make(chan struct{})
		srv.Handle(func(Request) (Reply, bool) { close(called); <-let; return Reply{}, false })
		nc, err := n.Dial("tcp", srv.Addr(), time.Second)
		require.NoError(t, err)
		defer nc.Close()
		c := rawzk.Wrap(nc)
		require.NoError(t, c.Connect(wire.ConnectRequest{Timeout: 40_000}))
		_, err = c.Send(wire.OpExists, wire.PathWatchRequest{Path: "/"})
		require.NoError(t, err)
		<-called
		closed := make(chan struct{})
		go func() { srv.Close(); close(closed) }()
		time.Sleep(closeWarning - 1)
		synctest.Wait()
		require.Empty(t, logged)
		time.Sleep(time.Hour)
		require.Len(t, logged, 1)
		require.Contains(t, <-logged, "a function that Handle or Fault.Call was given")
		close(let)
		<-closed
	})
}
