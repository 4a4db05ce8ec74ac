package main

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// Three processes of ours come before the command, each with handlers, limits and descriptors of its own. The command
// sees nothing of that.
func TestRun_CommandStartsAsWithoutZklock(t *testing.T) {
	srv := server(t)
	for _, argv := range [][]string{
		{"grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"},
		{"ls", "/proc/self/fd"},
		{"sh", "-c", "ulimit -n; ulimit -Hn; umask; pwd"},
	} {
		// By way of a shell: Go's os/exec does some of its own.
		plain, err := exec.Command("sh", append([]string{"-c", `exec "$@"`, "sh"}, argv...)...).Output()
		require.NoError(t, err)
		p := run(t, srv, lockPath(t), append([]string{"-q", "--"}, argv...)...)
		require.Equal(t, 0, p.wait())
		require.Equal(t, string(plain), p.stdout.String(), argv)
	}
}
