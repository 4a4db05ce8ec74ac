package command

// The environment of COMMAND.

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/zklock/zklock"
)

func (o *runOptions) environ(hold *zklock.Hold) []string {
	env := without(os.Environ(), append(withheld(), envOuter)...)
	if outer := outerHolds(os.Getenv); len(outer) > 0 {
		env = append(env, envOuter+"="+outerWords(outer))
	}
	return setenv(env, envToken+"="+strconv.FormatInt(hold.Token(), 10), "ZKLOCK_PATH="+o.path, envNode+"="+hold.Node())
}

// setenv replaces or adds variables. Otherwise a run inside a run would have two variables of one
// name, and the command would decide which of them counts.
func setenv(env []string, vars ...string) []string {
	for _, v := range vars {
		name, _, _ := strings.Cut(v, "=")
		env = without(env, name)
	}
	return append(env, vars...)
}

func without(env []string, names ...string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return slices.Contains(names, name)
	})
}
