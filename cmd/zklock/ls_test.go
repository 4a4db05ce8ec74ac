//go:build linux || darwin

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

func TestList(t *testing.T) {
	srv, path := server(t), lockPath(t)
	list := func(args ...string) string {
		p := start(t, nil, append([]string{"ls", "--servers", srv.ConnectString(), path}, args...)...)
		require.Equal(t, 0, p.wait())
		return p.stdout.String()
	}
	require.Equal(t, "NODE  TOKEN  SESSION  HOST  PID  AGE\n", list())
	require.Equal(t, "[]\n", list("--json"))

	s := session(t, srv)
	hold, _ := occupy(t, s, path)
	p := run(t, srv, path, "--", "true")
	eventually(t, "it queues", func() bool { return len(participants(t, s, path)) == 2 })
	m, err := zklock.NewMutex(s, path, zklock.WithData([]byte("a word")))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan error, 1)
	go func() { _, err := m.Acquire(ctx); waited <- err }()
	eventually(t, "a third queues", func() bool { return len(participants(t, s, path)) == 3 })
	defer func() { cancel(); require.ErrorIs(t, <-waited, context.Canceled) }()

	host, err := os.Hostname()
	require.NoError(t, err)
	rows := strings.Split(strings.TrimSpace(list()), "\n")
	require.Len(t, rows, 4)
	first, second, third := strings.Fields(rows[1]), strings.Fields(rows[2]), strings.Fields(rows[3])
	require.Equal(t, hold.Path(), first[0])
	require.Equal(t, strconv.FormatInt(hold.Token(), 10), first[1])
	require.Equal(t, fmt.Sprintf("%#x", s.SessionID()), first[2])
	require.Equal(t, []string{host, strconv.Itoa(p.cmd.Process.Pid)}, second[3:5])
	require.Equal(t, []string{"-", "-"}, third[3:5])

	var entries []entry
	require.NoError(t, json.Unmarshal([]byte(list("--json")), &entries))
	require.Len(t, entries, 3)
	require.Equal(t, []string{first[0], second[0], third[0]}, []string{entries[0].Node, entries[1].Node, entries[2].Node})
	require.Equal(t, hold.Token(), entries[0].Token)
	require.Equal(t, first[2], entries[0].Session)
	require.Equal(t, host, entries[1].Host)
	require.Equal(t, p.cmd.Process.Pid, entries[1].Pid)
	require.Equal(t, "a word", entries[2].Data)
	require.Positive(t, entries[0].AgeSeconds)
}
