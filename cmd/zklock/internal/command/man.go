package command

// The man page, from the same texts as the help.

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newManCommand returns the hidden command that scripts/install calls.
func newManCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "__man",
		Hidden: true,
		Args:   none,
		RunE: func(c *cobra.Command, _ []string) error {
			writeManPage(c.OutOrStdout(), c.Root())
			return nil
		},
	}
}

const manEnvironment = `A flag that is not on the command line is taken from its variable: --wait from ZKLOCK_WAIT. Only --yes has none.

zklock run gives COMMAND the variables ZKLOCK_TOKEN, ZKLOCK_PATH, ZKLOCK_NODE and ZKLOCK_OUTER, which its section describes. COMMAND does not inherit ZKLOCK_AUTH, the credentials.`

const manFiles = `The files of --auth-file, --keytab, --krb5-conf (by default $KRB5_CONFIG, or /etc/krb5.conf) and of the --tls flags are read.

The file of --metrics-file is replaced at each run. zklock locks a file beside it, whose name begins with a dot and ends in .lock.

The file of --session-file has the ZooKeeper sessions of a run, with their passwords, until they have ended.

zklock serve --data DIR keeps its nodes in DIR/zklock-serve.json.`

const manSeeAlso = `flock(1), crontab(5), systemd.service(5), zkCli.sh(1)

https://zookeeper.apache.org/doc/current/recipes.html describes the lock's recipe.

docs/operating.md in share/doc/zklock, beside share/man of this page, explains the messages, and says what to do.`

// writeManPage writes zklock(1) in the man macros of roff.
func writeManPage(w io.Writer, root *cobra.Command) {
	var commands []*cobra.Command
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" {
			commands = append(commands, c)
		}
	}
	section := func(name string) { fmt.Fprintf(w, ".SH %s\n", name) }
	fmt.Fprint(w, ".TH ZKLOCK 1\n.nh\n")
	section("NAME")
	fmt.Fprint(w, "zklock \\- run commands under ZooKeeper locks\n")
	section("SYNOPSIS")
	for _, c := range commands {
		fmt.Fprintf(w, ".B %s\n.br\n", roff(c.UseLine()))
	}
	section("DESCRIPTION")
	manParagraphs(w, root.Long)
	for _, c := range commands {
		text, _, _ := strings.Cut(c.Long, "Exit codes:\n")
		if text != "" {
			fmt.Fprintf(w, ".SS %s\n", c.CommandPath())
			manParagraphs(w, text)
		}
	}
	section("OPTIONS")
	manOptions(w, commands)
	section("EXIT STATUS")
	for _, c := range commands {
		if _, codes, found := strings.Cut(c.Long, "Exit codes:\n"); found {
			fmt.Fprintf(w, ".SS %s\n", c.CommandPath())
			codes = regexp.MustCompile(`\n {3,}`).ReplaceAllString(codes, " ") // a line of the help that continues
			for _, code := range regexp.MustCompile(`(?m)^  (126, 127|\S+) +(.+)$`).FindAllStringSubmatch(codes, -1) {
				fmt.Fprintf(w, ".TP\n.B %s\n%s\n", roff(code[1]), roff(code[2]))
			}
		}
	}
	section("ENVIRONMENT")
	manParagraphs(w, manEnvironment)
	section("FILES")
	manParagraphs(w, manFiles)
	section("EXAMPLES")
	for _, c := range commands {
		manParagraphs(w, c.Example)
	}
	section("SEE ALSO")
	manParagraphs(w, manSeeAlso)
}

// manOptions writes the flags of run in their groups, and then those that run does not have, each
// once, under the commands that have it.
func manOptions(w io.Writer, commands []*cobra.Command) {
	key := func(f *pflag.Flag) string { return f.Name + f.Usage }
	owners := map[string][]string{}
	var titles []string
	flags := map[string][]*pflag.Flag{}
	runFirst := slices.Clone(commands)
	run := slices.IndexFunc(runFirst, func(c *cobra.Command) bool { return c.Name() == "run" })
	runFirst = slices.Insert(slices.Delete(runFirst, run, run+1), 0, commands[run])
	for _, c := range runFirst {
		for _, f := range each(c.LocalFlags().VisitAll) {
			owners[key(f)] = append(owners[key(f)], c.CommandPath())
		}
	}
	for _, c := range runFirst {
		for _, g := range groupsOf(c) {
			for _, f := range each(g.flags.VisitAll) {
				if by := owners[key(f)]; f.Name != "help" && by[0] == c.CommandPath() {
					title := g.title
					if c.Name() != "run" {
						title = "Only " + strings.Join(by, " and ")
					}
					if flags[title] == nil {
						titles = append(titles, title)
					}
					flags[title] = append(flags[title], f)
				}
			}
		}
	}
	for _, title := range titles {
		fmt.Fprintf(w, ".SS %s\n", roff(title))
		for _, f := range flags[title] {
			one := pflag.NewFlagSet(f.Name, pflag.ContinueOnError)
			one.AddFlag(f)
			name, usage, _ := strings.Cut(strings.TrimSpace(one.FlagUsages()), "   ")
			fmt.Fprintf(w, ".TP\n.B %s\n%s\n", roff(name), roff(strings.TrimSpace(usage)))
		}
	}
}

// manParagraphs writes a text of the help. A paragraph that is indented there keeps its lines.
func manParagraphs(w io.Writer, text string) {
	for _, p := range strings.Split(strings.Trim(text, "\n"), "\n\n") {
		switch {
		case p == "":
		case strings.HasPrefix(p, "  "):
			fmt.Fprintf(w, ".PP\n.nf\n.in 0\n%s\n.in\n.fi\n", roff(p))
		default:
			fmt.Fprintf(w, ".PP\n%s\n", roff(p))
		}
	}
}

// roff escapes a text.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	return regexp.MustCompile(`(?m)^[.']`).ReplaceAllString(text, `\&$0`)
}
