package mutants

import (
	"context"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// root is the directory of the package whose tests are tested.
var root = filepath.Join("..", "..")

func (m mutant) plant(t testing.TB) map[string]string {
	return Mutate(t, filepath.Join(root, m.dir), m.swaps...)
}
func (m mutant) testNames() []string { return strings.Split(m.tests, "|") }

// testsByPackage returns the tests with their packages: the library, the packages that it is made
// of, test, or the command's supervisor.
func testsByPackage(t *testing.T) map[string]string {
	t.Helper()
	packages := map[string]string{}
	list := exec.Command("go", "list", "-deps", "-f", `{{with .Module}}{{if eq .Path "github.com/zklock/zklock"}}{{$.Dir}}{{end}}{{end}}`, ".")
	list.Dir = root
	out, err := list.Output()
	require.NoError(t, err)
	here, err := filepath.Abs(root)
	require.NoError(t, err)
	dirs := []string{"test", "internal/sim", "internal/crash", supervisor, guard, "shards"}
	for _, dir := range strings.Fields(string(out)) {
		dir, err = filepath.Rel(here, dir)
		require.NoError(t, err)
		dirs = append(dirs, dir)
	}
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
		require.NoError(t, err)
		for _, file := range files {
			source, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllStringSubmatch(string(source), -1) {
				if _, twice := packages[m[1]]; twice {
					packages[m[1]] = "" // a mutant cannot name it
					continue
				}
				packages[m[1]] = dir
			}
		}
	}
	return packages
}

// where groups a mutant's tests by their packages.
func (m mutant) where(packages map[string]string) map[string][]string {
	tests := map[string][]string{}
	for _, name := range m.testNames() {
		tests[packages[name]] = append(tests[packages[name]], name)
	}
	return tests
}

// Every mutant still fits the code, still parses, and its tests exist. There are no more than a
// reader of the decisions can check.
func TestMutants_FitTheCode(t *testing.T) {
	tests := testsByPackage(t)
	names := map[string]bool{}
	all := slices.Concat(library, semaphore, sessionFile, command, sharding)
	for _, m := range asserted {
		all = append(all, m.mutant)
	}
	require.LessOrEqual(t, len(all), 140, "which of them is the weakest?")
	for _, m := range all {
		require.False(t, names[m.name], "two mutants are called %q", m.name)
		names[m.name] = true
		for file, text := range m.plant(t) {
			_, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
			require.NoError(t, err, m.name)
		}
		for _, name := range m.testNames() {
			require.NotEmpty(t, tests[name], "%q: there is no %s, or there are two", m.name, name)
		}
	}
}

// Every mutant fails each of its tests, which pass without it. The library is compiled once for
// each, so it runs only if ZKLOCK_MUTANTS=1.
func TestMutants_AllCaught(t *testing.T) {
	if os.Getenv("ZKLOCK_MUTANTS") != "1" {
		t.Skip("mutants are planted only with ZKLOCK_MUTANTS=1")
	}
	packages := testsByPackage(t)
	all := map[string][]string{}
	for _, m := range slices.Concat(library, semaphore, sessionFile, command, sharding) {
		for dir, tests := range m.where(packages) {
			all[dir] = append(all[dir], tests...)
		}
	}
	for dir, tests := range all {
		passed := run(t, compile(t, dir), dir, tests)
		for _, name := range tests {
			require.Contains(t, passed, "--- PASS: "+name+" ", "%s does not pass on the library as it is:\n%s", name, passed)
		}
	}
	for _, m := range slices.Concat(library, semaphore, sessionFile, command, sharding) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			overlay := Overlay(t, m.plant(t))
			for dir, tests := range m.where(packages) {
				mutated := compile(t, dir, "-overlay", overlay)
				failed := run(t, mutated, dir, tests, "GOFLAGS=-overlay="+overlay) // for the builds of the tests
				for _, name := range tests {
					require.Contains(t, failed, "--- FAIL: "+name+" ", "%s did not find the mutant, which breaks %s:\n%s", name, m.promise, failed)
				}
				require.NoError(t, os.Remove(mutated))
			}
		})
	}
}

// compile builds the tests of a package, as fast as possible. A mutant that does not compile proves
// nothing.
func compile(t *testing.T, dir string, args ...string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "zklock.test")
	cmd := exec.Command("go", append(append([]string{"test", "-c", "-vet=off", "-o", binary, "-gcflags=-l", "-ldflags=-s -w"}, args...), ".")...)
	cmd.Dir = filepath.Join(root, dir)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "this does not compile:\n%s", out)
	return binary
}

// A mistake in asserted fails no test, and panics in each of its tests if the build checks the
// invariants.
func TestMutants_AllCaughtByAssertions(t *testing.T) {
	if os.Getenv("ZKLOCK_MUTANTS") != "1" {
		t.Skip("mutants are planted only with ZKLOCK_MUTANTS=1")
	}
	const tags = "-tags=invariants"
	packages := testsByPackage(t)
	for _, m := range asserted {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			overlay := "-overlay=" + Overlay(t, m.plant(t))
			for dir, tests := range m.where(packages) {
				correct, mutated, checked := compile(t, dir, tags), compile(t, dir, overlay), compile(t, dir, tags, overlay)
				for _, name := range tests {
					passes := "--- PASS: " + name + " "
					require.Contains(t, run(t, correct, dir, []string{name}), passes, "%s does not pass on the library as it is", name)
					require.Contains(t, run(t, mutated, dir, []string{name}), passes, "%s finds the mutant without an assertion: move it to the other mutants", name)
					require.Contains(t, run(t, checked, dir, []string{name}), fmt.Sprintf("invariant %q does not hold", m.invariant),
						"in %s no assertion finds the mutant, which breaks %s", name, m.promise)
				}
			}
		})
	}
}

// run runs tests of a package and returns their output. A test that hangs has not failed in a way
// that counts. The slowest takes seconds, but of a processor that it may not get for minutes: in CI
// this has the lowest priority on the machine.
func run(t *testing.T, binary, dir string, tests []string, env ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-test.v", "-test.timeout=20m", "-test.run", "^("+strings.Join(tests, "|")+")$")
	if len(tests) == 1 {
		cmd.Args = append(cmd.Args, "-test.failfast")
	}
	if dir == "internal/sim" {
		cmd.Args = append(cmd.Args, "-sim.seeds=12") // one world may not meet the mistake
	}
	cmd.Dir, cmd.Env = filepath.Join(root, dir), append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	require.NotContains(t, string(out), "panic: test timed out", "a hang is not a failure:\n%s", out)
	return string(out)
}
