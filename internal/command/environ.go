package command

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
	env := without(os.Environ(), append(withheld(), envOuter)...)
	if outer := outerHolds(os.Getenv); len(outer) > 0 {
		env = append(env, envOuter+"="+outerWords(outer))
	}
	return setenv(env, envToken+"="+strconv.FormatInt(hold.Token(), 10), "ZKLOCK_PATH="+o.path, envNode+"="+hold.Node())
}

// setenv replaces variables, or adds them. Otherwise a run under a run would have two of one name, and the command would
// decide which of them counts.
func setenv(env []string, vars ...string) []string {
	for _, v := range vars {
		name, _, _ := strings.Cut(v, "=")
		env = without(env, name)
	}
	return append(env, vars...)
}

// without takes variables away.
func without(env []string, names ...string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return slices.Contains(names, name)
	})
}
