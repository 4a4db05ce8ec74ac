package command

// Flags from the environment: a flag that is not on the command line is taken from its variable.

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// variableOf returns the variable of a flag, "" for none. --yes has none, because it confirms this
// one command.
func variableOf(flag string) string {
	switch flag {
	case "help", "version", "yes":
		return ""
	}
	return "ZKLOCK_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// yields has, for a variable's flag, the flags that contradict it. If one of them is on the command
// line, the variable is ignored; "lease=single" is a flag with that value.
var yields = map[string][]string{
	"wait": {"no-wait"}, "no-wait": {"wait"},
	"quiet": {"verbose"}, "verbose": {"quiet"},
	"shared": {"semaphore", "elect"}, "semaphore": {"shared", "elect"}, "elect": {"shared", "semaphore"},
	"semaphore-limit": {"shared", "elect", "recursive"}, "permits": {"shared", "elect"},
	"lock-delay": {"shared", "semaphore", "container"}, "container": {"lock-delay"},
	"hold-at-least": {"shared", "semaphore", "elect"}, "once": {"shared", "semaphore", "elect"}, "once-keep": {"shared", "semaphore", "elect"},
	"leader-ping": {"lease=single"},
	"all":         {"held"}, "held": {"all", "watch"}, "watch": {"recursive", "held"}, "recursive": {"watch"},
	"holder": {"all-holders"}, "all-holders": {"holder"},
	"forget":    {"json"},
	"auth-file": {"sasl=kerberos"},
	"keytab":    {"sasl=digest"}, "principal": {"sasl=digest"}, "krb5-conf": {"sasl=digest"}, "krb5-host-as-given": {"sasl=digest"},
	"server-principal": {"sasl=digest"},
}

// mustHaveValue has the flags whose variable must not be empty: without its value the run would be
// less safe than intended, for example because a label that it is taken from is missing. An empty
// variable of another flag counts as unset.
var mustHaveValue = []string{
	// A job runs again, or alongside the last holder.
	"once", "once-keep", "hold-at-least", "lock-delay",
	// Another lock, or more permits in use than intended.
	"semaphore", "semaphore-limit", "permits",
	// A lease, nodes or a connection that is less safe.
	"leader-ping", "acl", "auth-file", "tls-ca", "tls-cert", "tls-key", "tls-server-name", "tls-client-ca", "sasl-users",
	// prune and revoke affect more than intended.
	"older-than", "holder",
}

// withVariables has commands take flags from the environment. Their help lists the variables.
func withVariables(cmds ...*cobra.Command) []*cobra.Command {
	for _, cmd := range cmds {
		args, run := cmd.Args, cmd.RunE
		var taken []string
		cmd.Args = func(c *cobra.Command, given []string) (err error) {
			if taken, err = takeVariables(c, os.LookupEnv); err != nil {
				return c.FlagErrorFunc()(c, err)
			}
			return args(c, given)
		}
		cmd.RunE = func(c *cobra.Command, given []string) error {
			err := formatStderr(c)
			if err == nil {
				err = rejectEmpty(c)
			}
			if err == nil {
				err = run(c, given)
			}
			return nameVariables(err, taken)
		}
	}
	return cmds
}

// rejectEmpty rejects "" as the name of a file on the command line, which an unset variable of a
// script leaves: the flag would silently not apply.
func rejectEmpty(cmd *cobra.Command) error {
	for _, f := range each(cmd.Flags().Visit) {
		what, _ := pflag.UnquoteUsage(f)
		if f.Value.String() == "" && (strings.EqualFold(what, "file") || strings.HasSuffix(f.Name, "-file")) {
			return exitf(exitUsage, `--%s "" is no file: give its name, or leave the flag out`, f.Name)
		}
	}
	return nil
}

// takeVariables sets the flags that are not on the command line, and whose variables have a value,
// and returns them. The value false of a boolean flag counts as unset.
func takeVariables(cmd *cobra.Command, lookupEnv func(string) (value string, isSet bool)) (taken []string, err error) {
	isGiven := map[string]bool{}
	for _, f := range each(cmd.Flags().Visit) {
		isGiven[f.Name], isGiven[f.Name+"="+f.Value.String()] = true, true
	}
	for _, f := range each(cmd.Flags().VisitAll) {
		variable := variableOf(f.Name)
		if variable == "" || isGiven[f.Name] || slices.ContainsFunc(yields[f.Name], func(other string) bool { return isGiven[other] }) {
			continue
		}
		value, isSet := lookupEnv(variable)
		if isSet && value == "" && slices.Contains(mustHaveValue, f.Name) {
			return taken, fmt.Errorf("$%s is empty: give --%s a value, or unset the variable", variable, f.Name)
		}
		if is, bad := strconv.ParseBool(value); value == "" || f.Value.Type() == "bool" && bad == nil && !is {
			continue
		}
		if err := cmd.Flags().Set(f.Name, value); err != nil {
			return taken, fmt.Errorf("$%s: %w", variable, err)
		}
		taken = append(taken, f.Name)
	}
	return taken, nil
}

// each returns the values that a visitor would get, such as flags.
func each[T any](visit func(func(T))) (all []T) {
	visit(func(one T) { all = append(all, one) })
	return all
}

// nameVariables adds to a usage error which of the flags that it names are from variables.
func nameVariables(err error, taken []string) error {
	var e *exitError
	if !errors.As(err, &e) || e.code != exitUsage || e.err == nil {
		return err
	}
	var from []string
	for _, flag := range taken {
		if regexp.MustCompile(`--` + flag + `($|[^a-z-])`).MatchString(e.err.Error()) {
			from = append(from, fmt.Sprintf("--%s is from $%s", flag, variableOf(flag)))
		}
	}
	if len(from) > 0 {
		return &exitError{e.code, fmt.Errorf("%w (%s)", e.err, strings.Join(from, ", "))}
	}
	return err
}

func variablesHelp(cmd *cobra.Command) string {
	var names []string
	for _, f := range each(cmd.Flags().VisitAll) {
		if v := variableOf(f.Name); v != "" {
			names = append(names, "$"+v)
		}
	}
	if len(names) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\nEnvironment: a flag that is not on the command line is taken from its variable:\n ")
	width := 1
	for _, name := range names {
		if width+1+len(name) > lineWidth {
			b.WriteString("\n ")
			width = 1
		}
		b.WriteString(" " + name)
		width += 1 + len(name)
	}
	return b.String() + "\n"
}

// ofTheServers are the flags of run that are about the servers, and not about the one run.
var ofTheServers = []string{"lease", "leader-ping", "acl"}

// withheld returns the variables that COMMAND does not inherit: the credentials, and the flags of
// this run alone. A run inside it is another one, and so is its metrics file. The flags for
// reaching the servers apply to both.
func withheld() (names []string) {
	run := &cobra.Command{}
	new(runOptions).addFlags(run)
	names = append(names, envAuth)
	for _, f := range each(run.Flags().VisitAll) {
		if v := variableOf(f.Name); v != "" && !slices.Contains(ofTheServers, f.Name) {
			names = append(names, v)
		}
	}
	return names
}
