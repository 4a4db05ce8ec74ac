package zktest

import (
	"encoding/binary"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// A server that closes a connection with a frame that is too long has not read all of it. ZooKeeper
// shuts its side down before it closes, so that the client reads the end of the stream and no
// reset.
func TestClose_ClientStillSends_ReadsTheEnd(t *testing.T) {
	srv := Start(t)
	for range 100 {
		nc, err := net.Dial("tcp", srv.Addr())
		require.NoError(t, err)
		frame := binary.BigEndian.AppendUint32(nil, 1<<30)
		_, err = nc.Write(append(frame, make([]byte, 200_000)...))
		_, readErr := io.Copy(io.Discard, nc)
		nc.Close()
		require.NoError(t, readErr, "after a write with %v", err)
	}
}
