package command

// docs/command.md and --help say what is there.

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// commandPage returns docs/command.md, and its sections by their headings.
func commandPage(t *testing.T) (page string, sections map[string]string) {
	t.Helper()
	b, err := os.ReadFile("../../../../docs/command.md")
	require.NoError(t, err)
	page = strings.ReplaceAll(string(b), "\r\n", "\n")
	sections = map[string]string{}
	for _, s := range strings.Split(page, "\n## ") {
		heading, text, _ := strings.Cut(s, "\n")
		sections[heading] = text
	}
	return page, sections
}

// The table of a job's metrics, and the alerts on them in rules.yml, have those that a report has.
func TestCommandPage_HasEveryMetric_AndNoOther(t *testing.T) {
	page, _ := commandPage(t)
	rules, err := os.ReadFile("../../../../contrib/zklockprom/rules.yml")
	require.NoError(t, err)
	_, alerts, found := strings.Cut(string(rules), "- name: zklock-run\n")
	require.True(t, found)
	_, section, _ := strings.Cut(page, "\n### Metrics of a job\n")
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

func TestCommandPage_HasEveryFlag_AndNoOther(t *testing.T) {
	page, sections := commandPage(t)
	known := []string{"--help", "--version"}
	connect := &cobra.Command{}
	new(connection).addFlags(connect)
	root := newRootCommand()
	for _, c := range root.Commands() {
		for _, name := range flagName.FindAllString(c.Flags().FlagUsages(), -1) {
			f := c.Flags().Lookup(name[2:])
			if f == nil {
				continue // of another command, in the text of a flag
			}
			known = append(known, name)
			section := "zklock " + c.Name()
			if connect.Flags().Lookup(f.Name) != nil {
				section = "zklock run"
			}
			require.Regexp(t, "`?--"+f.Name+"\\b", sections[section], "the section %q of docs/command.md", section)
			if f.Shorthand != "" {
				require.Contains(t, sections[section], "`-"+f.Shorthand+"`", "the section %q of docs/command.md", section)
			}
			if section != "zklock run" || slices.Contains([]string{"", "0", "0s", "false"}, f.DefValue) {
				continue
			}
			row := regexp.MustCompile("(?m)^.*`--" + f.Name + "`.*$").FindString(sections[section])
			require.Contains(t, row, f.DefValue, "the default of --%s", f.Name)
		}
	}
	foreign := []string{"--stop-timeout", "--fence"} // docker's, an example's
	for _, texts := range append([]string{page}, helpTexts(root)...) {
		for _, flag := range flagName.FindAllString(texts, -1) {
			require.Contains(t, append(known, foreign...), flag, "there is no such flag")
		}
	}
}

func helpTexts(root *cobra.Command) (texts []string) {
	for _, c := range root.Commands() {
		texts = append(texts, c.Long, c.Example, c.Flags().FlagUsages())
	}
	return texts
}

// The codes are in the page's table and in the help with the same words.
func TestCommandPage_ExitCodes(t *testing.T) {
	_, sections := commandPage(t)
	_, text, ok := strings.Cut(sections["zklock run"], "### Exit codes\n")
	require.True(t, ok)
	text, _, _ = strings.Cut(text, "\n### ")
	var page, help []string
	for _, m := range regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]+) \|$`).FindAllStringSubmatch(text, -1)[1:] {
		page = append(page, strings.ReplaceAll(m[1]+": "+m[2], "`", ""))
	}
	for _, m := range regexp.MustCompile(`(?m)^  (126, 127|\S+) +(.+)$`).FindAllStringSubmatch(runExitCodes, -1) {
		help = append(help, m[1]+": "+m[2])
	}
	require.Equal(t, page, help)
	for _, code := range []int{exitLost, exitNotAcquired, exitNoServer, exitRefused, exitUsage, exitCannotRun, exitNotFound, exitSignal} {
		require.Contains(t, strings.Join(help, "\n"), strconv.Itoa(code))
	}
}

// A number means the same on every machine: a flag of Go's int is read as 64 bits, and cut to 32 where an int has no more.
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
