package command

// Attacks on the help and the man page: flags that are in no group or on no page, and lines that a
// terminal breaks. scripts/packages has man format the page.

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// Each flag of run is in one group of the help, and no other name is.
func TestHelp_EachFlagOfRunIsInOneGroup(t *testing.T) {
	run, _, err := newRootCommand().Find([]string{"run"})
	require.NoError(t, err)
	var grouped, flags []string
	for _, g := range flagGroups {
		grouped = append(grouped, g.names...)
	}
	for _, f := range each(run.Flags().VisitAll) {
		flags = append(flags, f.Name)
	}
	slices.Sort(grouped)
	require.Equal(t, flags, grouped)
}

func TestHelp_FitsIn80Columns(t *testing.T) {
	for _, c := range newRootCommand().Commands() {
		var help bytes.Buffer
		c.SetOut(&help)
		require.NoError(t, c.Help())
		for line := range strings.Lines(help.String()) {
			require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), lineWidth, "zklock %s --help: %s", c.Name(), line)
		}
	}
}

// The man page has the sections that people look for, and every flag of every command.
func TestManPage_HasEachSectionAndEachFlag(t *testing.T) {
	var out, errs bytes.Buffer
	require.Equal(t, 0, execute([]string{"__man"}, &out, &errs), errs.String())
	page := out.String()
	at := 0
	for _, section := range []string{"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES", "SEE ALSO"} {
		next := strings.Index(page, "\n.SH "+section+"\n")
		require.Greater(t, next, at, section)
		at = next
	}
	var flags []string
	for _, line := range regexp.MustCompile(`(?m)^\.B .*`).FindAllString(strings.ReplaceAll(page, `\-`, "-"), -1) {
		flags = append(flags, regexp.MustCompile(`--[\w-]+`).FindAllString(line, -1)...)
	}
	for _, c := range newRootCommand().Commands() {
		for _, f := range each(c.Flags().VisitAll) {
			require.Contains(t, flags, "--"+f.Name, "zklock %s", c.Name())
		}
	}
	_, options, _ := strings.Cut(strings.ReplaceAll(page, `\-`, "-"), "\n.SH OPTIONS\n")
	options, _, _ = strings.Cut(options, "\n.SH ")
	headings := regexp.MustCompile(`(?m)^\.SS .*`).FindAllString(options, -1)
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(headings))), len(headings), "two have the same name")
	require.Regexp(t, `(?s)\.SS Only zklock prune and zklock runs\n\.TP\n\.B --json\nprint a JSON array\n`, options)
	_, files, _ := strings.Cut(page, "\n.SH FILES\n")
	files, _, _ = strings.Cut(files, "\n.SH ")
	for _, c := range newRootCommand().Commands() {
		for _, f := range each(c.Flags().VisitAll) {
			if strings.HasSuffix(f.Name, "-file") {
				require.Contains(t, files, roff("--"+f.Name), "zklock %s", c.Name())
			}
		}
	}
	require.Contains(t, page, roff("docs/operating.md"))
	require.Contains(t, page, roff("--wait 0, the holder was asked"), "a line of the exit codes that continues")
}
