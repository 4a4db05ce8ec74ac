package command

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A person at a terminal sees that the lock is there, and with --quiet nothing but the command's
// output.
func TestRun_AtATerminal_ReportsThatItHasTheLock(t *testing.T) {
	srv := server(t)
	for flag, says := range map[string]bool{"--lease=single": true, "--quiet": false} {
		s, cmd := onTerminal(t, binary(t), "run", "--servers", srv.ConnectString(), flag, lockPath(t), "--", "echo", "the", "output")
		require.NoError(t, cmd.Wait())
		_, err := s.tty.WriteString("the end") // shown after all that the run wrote
		require.NoError(t, err)
		s.expect("the end")
		if says {
			require.Regexp(t, `zklock: \S+: acquired, token \d+\r\n`, s.shown.String())
		} else {
			require.Equal(t, "the output\r\nthe end", s.shown.String())
		}
	}
}
