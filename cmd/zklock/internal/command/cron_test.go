//go:build linux || darwin

package command

// Attacks on what docs/command.md says of cron: which lines a run sends by mail, and its exit code.

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// cronRun starts zklock as cron does: hardly any environment, no input, and output that goes into a
// pipe. Then it lets the run come to its end, and returns what cron would mail.
func cronRun(t *testing.T, servers string, meanwhile func(said *buffer), flags ...string) (mail string, code int) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	args := append([]string{"run", "--session-timeout", "10s", "--lease", "single", "--connect-timeout", "3s"}, flags...)
	p := start(t, func(c *exec.Cmd) {
		c.Env = []string{"PATH=/usr/bin:/bin", "HOME=/", "SHELL=/bin/sh", "LOGNAME=root", envServers + "=" + servers}
		c.Stdout, c.Stderr = w, w
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	}, append(args, "/cron/"+strings.ReplaceAll(t.Name(), "/", "-"), "--", "true")...)
	require.NoError(t, w.Close())
	var said buffer
	read := make(chan error, 1)
	go func() { _, err := io.Copy(&said, r); read <- err }()
	meanwhile(&said)
	require.NoError(t, <-read)
	return said.String(), p.wait()
}

var cronLine = regexp.MustCompile(`(?m)^zklock: (?:/\S+: (waiting: |acquired, |not acquired: ))?.*\n`)

// mailCell is a cell of the table: the lines that zklock wrote, by their beginnings, and the exit
// code.
func mailCell(t *testing.T, mail string, code int) string {
	t.Helper()
	var lines []string
	for _, m := range cronLine.FindAllStringSubmatch(mail, -1) {
		if m[1] == "" {
			m[1] = "why "
		}
		lines = append(lines, "`"+strings.TrimRight(m[1], " ")+" …`")
	}
	require.Equal(t, strings.Count(mail, "\n"), len(lines), "it is all ours: %s", mail)
	if lines == nil {
		lines = []string{"nothing"}
	}
	return fmt.Sprintf("%s; %d", strings.Join(lines, ", "), code)
}

func TestRun_InCron_MailsWhatTheTableLists(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../../../docs/command.md")
	require.NoError(t, err)
	srv := server(t)
	s := session(t, srv)
	for _, flags := range []string{"", "-q", "-v", "-n", "-nq", "-n -E 0"} {
		t.Run("flags "+flags, func(t *testing.T) {
			t.Parallel()
			path := "/cron/" + strings.ReplaceAll(t.Name(), "/", "-")
			free, code := cronRun(t, srv.ConnectString(), func(*buffer) {}, strings.Fields(flags)...)
			cells := []string{mailCell(t, free, code)}

			_, release := occupy(t, s, path)
			held, code := cronRun(t, srv.ConnectString(), func(said *buffer) {
				if !strings.Contains(flags, "n") {
					eventually(t, "it queues", func() bool { return len(participants(t, s, path)) == 2 })
					if flags == "-q" {
						time.Sleep(2 * firstLook) // real time, because no event shows that a process will write nothing
					} else {
						eventually(t, "it says so", func() bool { return strings.Contains(said.String(), "waiting: ") })
					}
					release()
				}
			}, strings.Fields(flags)...)
			cells = append(cells, mailCell(t, held, code))

			failed, code := cronRun(t, "127.0.0.1:1", func(*buffer) {}, strings.Fields(flags)...)
			require.Equal(t, "`why …`; 122", mailCell(t, failed, code), "a failure is never silent")

			name := "none"
			if flags != "" {
				name = "`" + flags + "`"
			}
			row := fmt.Sprintf("| %s | %s |\n", name, strings.Join(cells, " | "))
			if !strings.Contains(string(doc), row) {
				t.Errorf("docs/command.md: write this row\n%s", row)
			}
		})
	}
}
