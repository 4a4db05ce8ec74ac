package command

// The help of each command: its flags, in groups and wrapped.

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagGroup is a part of the help: flags of one purpose.
type flagGroup struct {
	title string
	flags *pflag.FlagSet
}

// flagGroups are the flags of run, in the order of its help. A flag of another command that is in
// no group precedes them.
var flagGroups = []struct {
	title string
	names []string
}{
	{"Kind of lock", []string{"shared", "semaphore", "permits", "semaphore-limit", "elect"}},
	{"Waiting", []string{"wait", "no-wait", "conflict-exit-code"}},
	{"One run for a key, and time between runs", []string{"once", "once-keep", "hold-at-least", "lock-delay"}},
	{"End of COMMAND", []string{"kill-after", "leftovers", "revocable"}},
	{"Messages and metrics", []string{"quiet", "verbose", "name", "log-level", "log-format", "metrics-file"}},
	{"Servers and nodes", []string{"servers", "session-timeout", "connect-timeout", "lease", "leader-ping", "session-file", "create-chroot", "container"}},
	{"Permissions and authentication", []string{"auth-file", "acl", "sasl", "keytab", "principal", "krb5-conf", "krb5-host-as-given", "server-principal"}},
	{"TLS", []string{"tls", "tls-ca", "tls-cert", "tls-key", "tls-server-name"}},
}

// groupsOf returns the flags of a command in their groups, without empty groups.
func groupsOf(c *cobra.Command) (groups []flagGroup) {
	add := func(title string, names []string) {
		set := pflag.NewFlagSet(title, pflag.ContinueOnError)
		set.SortFlags = false
		for _, name := range names {
			if f := c.LocalFlags().Lookup(name); f != nil {
				set.AddFlag(f)
			}
		}
		if set.HasFlags() {
			groups = append(groups, flagGroup{title, set})
		}
	}
	grouped := map[string]bool{}
	for _, g := range flagGroups {
		for _, name := range g.names {
			grouped[name] = true
		}
	}
	var others []string
	for _, f := range each(c.LocalFlags().VisitAll) {
		if !grouped[f.Name] {
			others = append(others, f.Name)
		}
	}
	add("Flags", others)
	for _, g := range flagGroups {
		add(g.title, g.names)
	}
	return groups
}

// printUsage prints how a command is used: the second part of its help.
func printUsage(c *cobra.Command) {
	w := c.OutOrStderr()
	fmt.Fprintf(w, "Usage:\n  %s\n", c.UseLine())
	if c.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", c.Example)
	}
	for _, g := range groupsOf(c) {
		fmt.Fprintf(w, "\n%s:\n%s", g.title, g.flags.FlagUsagesWrapped(lineWidth))
	}
	fmt.Fprint(w, variablesHelp(c))
}
