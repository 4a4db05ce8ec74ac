package zktest

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
