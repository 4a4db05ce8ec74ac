package command

// docs/command.md and --help say what is there.

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// commandPage returns docs/command.md.
func commandPage(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../../../docs/command.md")
	require.NoError(t, err)
	return strings.ReplaceAll(string(b), "\r\n", "\n")
}

// The table of a job's metrics, and the alerts on them in rules.yml, have those that a report has.
func TestCommandPage_HasEveryMetric_AndNoOther(t *testing.T) {
	rules, err := os.ReadFile("../../../../contrib/zklockprom/rules.yml")
	require.NoError(t, err)
	_, alerts, found := strings.Cut(string(rules), "- name: zklock-run\n")
	require.True(t, found)
	_, section, _ := strings.Cut(commandPage(t), "\n### Metrics of a job\n")
	section, _, _ = strings.Cut(section, "\n### ")
	table := regexp.MustCompile("(?m)^\\| `zklock_run_([a-z_]+)` \\|").FindAllStringSubmatch(section, -1)
	ended, under := runReport{ended: true}, runReport{holds: true}
	g, err := readGauges(ended.String())
	require.NoError(t, err)
	require.Len(t, table, len(g.values))
	for _, row := range table {
		require.Contains(t, g.values, row[1])
	}
	while, err := readGauges(under.String())
	require.NoError(t, err)
	used := regexp.MustCompile(`zklock_run_([a-z_]+)`).FindAllStringSubmatch(alerts, -1)
	require.NotEmpty(t, used)
	for _, name := range used {
		require.Contains(t, while.values, name[1], "it must be there while a run that hangs is under way")
	}
	require.Contains(t, alerts, "by (path, file) (", "jobs of one lock succeed by themselves")
	require.Contains(t, alerts, "zklock_run_elect == 0", "a leader may lead for ever")
	require.Contains(t, alerts, "- zklock_run_wait_seconds", "who waited does not hang")
}

var flagName = regexp.MustCompile(`--[a-z][a-z0-9-]*`)

// The page and the help texts name no flag that no command has.
func TestCommandPage_NamesOnlyFlagsThatExist(t *testing.T) {
	known := []string{"--help", "--version", "--stop-timeout", "--fence"} // the last two are docker's and an example's
	root := newRootCommand()
	for _, c := range root.Commands() {
		for _, f := range each(c.Flags().VisitAll) {
			known = append(known, "--"+f.Name)
		}
	}
	for _, text := range append([]string{commandPage(t)}, helpTexts(root)...) {
		for _, flag := range flagName.FindAllString(text, -1) {
			require.Contains(t, known, flag, "there is no such flag")
		}
	}
}

func helpTexts(root *cobra.Command) (texts []string) {
	for _, c := range root.Commands() {
		texts = append(texts, c.Long, c.Example, c.Flags().FlagUsages())
	}
	return texts
}

// zklock's own codes are in the page and in the help.
func TestCommandPage_ExitCodes(t *testing.T) {
	_, text, ok := strings.Cut(commandPage(t), "\n### Exit codes\n")
	require.True(t, ok)
	text, _, _ = strings.Cut(text, "\n### ")
	for _, code := range []int{exitLost, exitNotAcquired, exitNoServer, exitRefused, exitUsage} {
		require.Contains(t, text, strconv.Itoa(code))
		require.Contains(t, runExitCodes, "\n  "+strconv.Itoa(code))
	}
	for _, code := range []int{exitCannotRun, exitNotFound, exitSignal} {
		require.Contains(t, runExitCodes, strconv.Itoa(code))
	}
}

// A number means the same on every machine: a flag of Go's int is read as 64 bits, and cut to 32
// where an int has no more.
func TestFlags_NumbersAreNotCut(t *testing.T) {
	numbers := 0
	for _, c := range newRootCommand().Commands() {
		for _, name := range flagName.FindAllString(c.Flags().FlagUsages(), -1) {
			f := c.Flags().Lookup(name[2:])
			if f == nil {
				continue // of another command, in the text of a flag
			}
			if f.Value.Type() == "int64" {
				numbers++
			}
			require.NotContains(t, []string{"int", "uint"}, f.Value.Type(), "zklock %s %s: give it 64 bits, and look at its bounds", c.Name(), name)
		}
	}
	require.GreaterOrEqual(t, numbers, 4)
}
