package main

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// echo returns all received bytes, and reports each connection's end.
func echo(t *testing.T) (addr string, ends chan struct{}) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { ln.Close() })
	ends = make(chan struct{}, 10)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				c.Close()
				ends <- struct{}{}
			}()
		}
	}()
	return ln.Addr().String(), ends
}

// relayed is a relay to the address, and a connection through it.
func relayed(t *testing.T, addr string, tr *traffic) (*relay, net.Conn) {
	t.Helper()
	r, err := startRelay(addr, tr)
	require.NoError(t, err)
	t.Cleanup(r.close)
	c, err := net.Dial("tcp", r.addr())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return r, c
}

func ask(t *testing.T, c net.Conn, text string, within time.Duration) error {
	t.Helper()
	_, err := io.WriteString(c, text)
	require.NoError(t, err)
	return hear(t, c, text, within)
}

func hear(t *testing.T, c net.Conn, text string, within time.Duration) error {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(within)))
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	require.Equal(t, text, string(got))
	return nil
}

func TestRelay_CutKeepsWhatIsSent_HealLetsItPass(t *testing.T) {
	addr, _ := echo(t)
	var tr traffic
	r, c := relayed(t, addr, &tr)
	require.NoError(t, ask(t, c, "one", 5*time.Second))
	require.EqualValues(t, 1, tr.Up.Load())
	require.EqualValues(t, 3, tr.DownBytes.Load())

	r.cut()
	require.ErrorIs(t, ask(t, c, "two", 100*time.Millisecond), os.ErrDeadlineExceeded)
	r.heal()
	require.NoError(t, hear(t, c, "two", 5*time.Second), "nothing is lost, and the connection is the same")
}

func TestRelay_CutHidesAClose(t *testing.T) {
	addr, ends := echo(t)
	r, c := relayed(t, addr, &traffic{})
	require.NoError(t, ask(t, c, "one", 5*time.Second))
	r.cut()
	c.Close()
	select {
	case <-ends:
		t.Fatal("the server heard through the cut that the client had closed")
	case <-time.After(100 * time.Millisecond):
	}
	r.heal()
	<-ends
}

func TestRelay_MuteLosesAnswersOnly(t *testing.T) {
	addr, _ := echo(t)
	var tr traffic
	r, c := relayed(t, addr, &tr)
	r.muted(true)
	require.Error(t, ask(t, c, "one", 100*time.Millisecond))
	require.EqualValues(t, 3, tr.UpBytes.Load())
	require.EqualValues(t, 3, tr.DownBytes.Load(), "the server has answered")
	r.muted(false)
	require.NoError(t, ask(t, c, "two", 5*time.Second))
}

func TestRelay_Point(t *testing.T) {
	addr, _ := echo(t)
	other, ends := echo(t)
	r, err := startRelay(addr, &traffic{})
	require.NoError(t, err)
	defer r.close()
	r.point(other)
	c, err := net.Dial("tcp", r.addr())
	require.NoError(t, err)
	require.NoError(t, ask(t, c, "one", 5*time.Second))
	c.Close()
	<-ends
}

func TestRelay_LetPass(t *testing.T) {
	addr, _ := echo(t)
	for _, cut := range []bool{false, true} {
		r, c := relayed(t, addr, &traffic{})
		r.letPass(1, cut)
		require.NoError(t, ask(t, c, "one", 5*time.Second))
		require.ErrorIs(t, ask(t, c, "two", 100*time.Millisecond), os.ErrDeadlineExceeded)
		r.heal()
		if cut {
			require.NoError(t, hear(t, c, "two", 5*time.Second))
		} else {
			require.ErrorIs(t, hear(t, c, "two", 100*time.Millisecond), os.ErrDeadlineExceeded)
		}
	}
}

func TestRelay_Patient_WaitsForTheServer(t *testing.T) {
	addr, err := serverPorts.addr()
	require.NoError(t, err)
	r, err := startRelay(addr, &traffic{}, patiently)
	require.NoError(t, err)
	defer r.close()
	c, err := net.Dial("tcp", r.addr())
	require.NoError(t, err)
	defer c.Close()
	require.ErrorIs(t, hear(t, c, "hello", 100*time.Millisecond), os.ErrDeadlineExceeded, "it is not hung up on")

	ln, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	defer ln.Close()
	server, err := ln.Accept()
	require.NoError(t, err)
	defer server.Close()
	_, err = server.Write([]byte("hello"))
	require.NoError(t, err)
	require.NoError(t, hear(t, c, "hello", 5*time.Second))
}
