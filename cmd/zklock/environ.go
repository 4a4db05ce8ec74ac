package main

// What COMMAND finds in its environment.

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/zklock/zklock"
)

// environ is COMMAND's environment.
func (o *runOptions) environ(hold *zklock.Hold) []string {
	return setenv(os.Environ(),
		"ZKLOCK_TOKEN="+strconv.FormatInt(hold.Token(), 10), "ZKLOCK_PATH="+o.path, "ZKLOCK_NODE="+hold.Node())
}

// setenv replaces variables, or adds them. Otherwise a run under a run would have two of one name, and the command would
// decide which of them counts.
func setenv(env []string, vars ...string) []string {
	var out []string
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if !slices.ContainsFunc(vars, func(v string) bool { return strings.HasPrefix(v, name+"=") }) {
			out = append(out, e)
		}
	}
	return append(out, vars...)
}
