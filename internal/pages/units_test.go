package pages

// This test checks that the units for systemd have the settings that a standby and a job's end
// need.

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnits_RestartForEver_AndEndByZklock(t *testing.T) {
	names, err := filepath.Glob("packaging/systemd/*.service")
	require.NoError(t, err)
	require.Len(t, names, 4)
	restarts, jobs := 0, 0
	for _, name := range names {
		has := map[string]bool{}
		section := ""
		for line := range strings.Lines(readFile(t, name)) {
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "[") {
				section = line
			}
			has[section+line] = true
		}
		if strings.Contains(readFile(t, name), "zklock run ") {
			jobs++
			require.True(t, has["[Service]KillMode=mixed"], name)
		}
		if strings.Contains(readFile(t, name), "zklock guard ") {
			require.True(t, has["[Service]RuntimeDirectoryPreserve=restart"], name)
		}
		if has["[Service]Restart=always"] {
			restarts++
			require.True(t, has["[Unit]StartLimitIntervalSec=0"], "%s: after a few restarts systemd starts it no more", name)
		}
	}
	require.Positive(t, restarts, "or this shows nothing")
	require.Equal(t, 2, jobs)
}
