package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDemo(t *testing.T) {
	t.Parallel()
	began := time.Now()
	p := start(t, nil, "demo")
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		require.FailNow(t, "the demo takes more than a minute")
	}
	require.Zero(t, p.wait())
	require.NotContains(t, p.stdout.String(), "FAILED")
	require.Regexp(t, `(?m)^Verified\n(  ok +.*\n){8}  in `, p.stdout.String())
	t.Logf("%.1fs", time.Since(began).Seconds())
}

func TestDemo_Plain_InterruptedEndsAtOnce(t *testing.T) {
	p := start(t, nil, "demo")
	p.prints("B  holds the lock")
	require.NotContains(t, p.stdout.String(), "\x1b", "no terminal: nothing is drawn")
	p.signal(syscall.SIGINT)
	require.Equal(t, exitSignal+int(syscall.SIGINT), p.wait())
}

// In a terminal there is a timeline, Ctrl-C ends the demo and not its workers one by one, and the cursor comes back.
func TestDemo_Terminal(t *testing.T) {
	s, cmd := onTerminal(t, "sh", "-c", `stty rows 24 cols 80; TERM=xterm LC_ALL=C.UTF-8 exec "$0" demo`, binary(t))
	s.expect("\x1b[?25l")
	s.expect("holds the lock")
	s.expect(" resource")
	s.expect("█ holds")
	s.typ(ctrlC)
	s.expect("interrupted")
	require.Equal(t, exitSignal+int(syscall.SIGINT), exitOf(t, cmd))
	require.Contains(t, s.shown.String(), "\x1b[?25h")
	require.NotContains(t, s.shown.String(), "FAILED")
}

func TestDemo_Refuses(t *testing.T) {
	for args, say := range map[string]string{
		"demo --session-timeout 3s":                      "go with --servers",
		"demo --servers a:1 --leader-ping -1s":           "below zero",
		"demo worker":                                    "for zklock demo to run",
		"demo more":                                      "unknown command",
		"demo --servers a:1 --session-timeout yesterday": "invalid",
	} {
		p := start(t, nil, strings.Fields(args)...)
		require.Equal(t, exitUsage, p.wait(), args)
		require.Contains(t, p.stderr.String(), say, args)
	}
}
