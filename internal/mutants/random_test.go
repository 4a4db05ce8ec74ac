package mutants

// The random mode measures the tests: it changes a random place of the code, and runs one layer of
// the tests after another until one fails.
//
//	make mutants RANDOM=300 SEED=7

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	randomMutants = flag.Int("random", 0, "how many random mutants TestMutants_Random examines")
	randomSeed    = flag.Uint64("seed", 1, "the seed of TestMutants_Random")
	randomAll     = flag.Bool("all", false, "run every layer on each random mutant, not only those up to the first that detects it")
)

// mutated are the packages that decide who has a lock, and until when.
var mutated = []string{".", "internal/queue", "internal/node", "internal/link", "internal/lease"}

// failure matches the lines of a test's output that name what failed.
var failure = regexp.MustCompile(`--- FAIL: \S+|(panic|fatal error|signal): .*|goleak: .*|\*\*\* Test killed.*`)

// layer is a part of the tests, as arguments of go test.
type layer struct {
	name, dir string
	args      []string

	listed, correct sync.Once
	deps            []string      // the directories of the packages that its tests contain
	took            time.Duration // for the code as it is
}

// layers are in the order of their cost. The unit tests of the changed package run before them.
var layers = []*layer{
	{name: "lease", dir: "internal/lease"},
	{name: "queue", dir: "internal/queue", args: []string{"-skip=^TestExplore"}},
	{name: "nodes", dir: "internal/node", args: []string{"-tags=invariants"}}, // their tests of the checks need the tag, too
	{name: "link", dir: "internal/link", args: []string{"-tags=invariants"}},
	{name: "root", dir: ".", args: []string{"-tags=invariants"}},
	{name: "frames", dir: "internal/frames", args: []string{"-tags=invariants"}},
	{name: "sim", dir: "internal/sim", args: []string{"-tags=invariants", "-run=TestVirtual_Simulation($|Of)", "-sim.seeds=5"}},
	{name: "explore", dir: "internal/queue", args: []string{"-run=^TestExplore"}},
	{name: "test", dir: "test"},
}

// Each layer's own flags exist: random mutants are made too rarely to show that a flag was removed.
func TestLayers_FlagsExist(t *testing.T) {
	for _, l := range layers {
		files, err := filepath.Glob(filepath.Join(root, l.dir, "*_test.go"))
		require.NoError(t, err)
		var declared string
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			declared += string(text)
		}
		for _, arg := range l.args {
			name, _, _ := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
			if !slices.Contains([]string{"run", "skip", "tags"}, name) {
				is := regexp.MustCompile(`flag\.\w+\("` + regexp.QuoteMeta(name) + `"`).MatchString(declared)
				require.True(t, is, "the tests of layer %s have no flag -%s", l.name, name)
			}
		}
	}
}

// place is one edit of one file. The file is named from the repository's root.
type place struct {
	dir, file, text, operator string
	edit
}

// Each random mutant is detected by a layer. A mutant that no layer detects behaves as the code
// does, or shows that a test is missing. It is printed as a difference.
func TestMutants_Random(t *testing.T) {
	if *randomMutants == 0 {
		t.Skip("random mutants are made only with -random=N, as make mutants RANDOM=N does")
	}
	places, left, tally := randomPlaces(t), *randomMutants, map[string]int{}
	var mu sync.Mutex // guards places, left and tally
	next := func() (p place, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if ok = left > 0 && len(places) > 0; ok {
			p, places, left = places[0], places[1:], left-1
		}
		return p, ok
	}
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for p, ok := next(); ok; p, ok = next() {
				by, compiles := p.detectedBy(t)
				if compiles && len(by) == 0 {
					t.Errorf("no layer detects this mutant; it needs a test, or is equivalent to the code:\n%s", p.diff())
					by = []string{"none"}
				}
				mu.Lock()
				if compiles {
					t.Logf("%s:%d: %s: %s", p.file, p.line(), p.operator, strings.Join(by, ", "))
					tally[strings.Fields(by[0])[0]]++
				} else {
					left++
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	t.Logf("detected by: %v", tally)
}

// randomPlaces returns each change to a file that this system compiles, in a random order that
// alternates between the operators.
func randomPlaces(t *testing.T) (order []place) {
	random, all := rand.New(rand.NewPCG(*randomSeed, 0)), map[string][]place{}
	for _, dir := range mutated {
		for _, file := range strings.Fields(goList(t, `{{join .GoFiles " "}}`, "./"+dir)) {
			file = filepath.Join(dir, file)
			text, err := os.ReadFile(filepath.Join(root, file))
			require.NoError(t, err)
			edits := mutations(t, file, string(text))
			for _, operator := range operators {
				for _, e := range edits[operator] {
					all[operator] = append(all[operator], place{dir, file, string(text), operator, e})
				}
			}
		}
	}
	for _, operator := range operators {
		places := all[operator]
		require.NotEmpty(t, places, operator)
		random.Shuffle(len(places), func(i, j int) { places[i], places[j] = places[j], places[i] })
	}
	for i := 0; len(all) > 0; i++ {
		for _, operator := range operators {
			if i < len(all[operator]) {
				order = append(order, all[operator][i])
			} else {
				delete(all, operator)
			}
		}
	}
	return order
}

// detectedBy runs the layers on a mutant, and returns those that detect it, with the tests that
// failed.
func (p place) detectedBy(t *testing.T) (by []string, compiles bool) {
	overlay := p.overlay(t)
	own := slices.IndexFunc(layers, func(l *layer) bool { return l.dir == p.dir })
	for _, l := range append([]*layer{layers[own]}, slices.Delete(slices.Clone(layers), own, own+1)...) {
		l.listed.Do(func() {
			l.deps = strings.Fields(goList(t, "{{with .Module}}{{$.Dir}}{{end}}", "-deps", "-test", "./"+l.dir))
		})
		dir, err := filepath.Abs(filepath.Join(root, p.dir))
		require.NoError(t, err)
		if !slices.Contains(l.deps, dir) {
			continue
		}
		l.correct.Do(func() { l.runCorrect(t) })
		limit := max(15*time.Minute, 5*l.took)
		out, passed := l.run(limit, overlay)
		if strings.Contains(out, "[build failed]") {
			return nil, false
		}
		if !passed { // a busy machine alone fails a test now and then
			out, passed = l.run(limit, overlay)
		}
		if !passed {
			by = append(by, fmt.Sprintf("%s %s", l.name, whatFailed(out)))
		}
		if !passed && !*randomAll {
			break
		}
	}
	return by, true
}

// whatFailed returns the lines that name what failed, or the end of an output without any.
func whatFailed(out string) []string {
	if lines := failure.FindAllString(out, -1); len(lines) > 0 {
		return lines
	}
	return []string{out[max(0, len(out)-500):]}
}

// runCorrect runs a layer on the code as it is, where it has to pass, and notes how long it takes.
func (l *layer) runCorrect(t *testing.T) {
	began := time.Now()
	out, passed := l.run(time.Hour, "")
	l.took = time.Since(began)
	if !passed {
		panic(fmt.Sprintf("the tests of %s fail without a mutant:\n%s", l.name, out))
	}
	t.Logf("the tests of %s pass without a mutant, in %s", l.name, l.took.Round(time.Second))
}

// run runs a layer, until its first failure. A layer that takes longer than limit fails: the mutant
// made it hang.
func (l *layer) run(limit time.Duration, overlay string) (out string, passed bool) {
	args := []string{"test", "./" + l.dir, "-vet=off", "-failfast", "-ldflags=-s -w", "-timeout=" + limit.String()}
	return goTool(overlay, append(args, l.args...)...)
}

// overlay writes the mutant where the go command finds it.
func (p place) overlay(t *testing.T) string {
	return Overlay(t, map[string]string{filepath.Join(root, p.file): p.text[:p.from] + p.edit.text + p.text[p.to:]})
}

func (p place) line() int { return strings.Count(p.text[:p.from], "\n") + 1 }

// diff returns the lines that the mutant changes.
func (p place) diff() string {
	from := strings.LastIndex(p.text[:p.from], "\n") + 1
	to := p.to + strings.Index(p.text[p.to:], "\n")
	lines := func(sign, text string) string { return "\n" + sign + strings.ReplaceAll(text, "\n", "\n"+sign) }
	return fmt.Sprintf("%s:%d: %s", p.file, p.line(), p.operator) +
		lines("-", p.text[from:to]) + lines("+", p.text[from:p.from]+p.edit.text+p.text[p.to:to])
}

// goTool runs the go command, and the go commands of the tests, on a mutant, or on the code as it
// is if overlay is empty.
func goTool(overlay string, args ...string) (out string, succeeded bool) {
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	if overlay != "" {
		cmd.Env = append(os.Environ(), "GOFLAGS=-overlay="+overlay)
	}
	text, err := cmd.CombinedOutput()
	return string(text), err == nil
}

func goList(t *testing.T, format string, args ...string) string {
	out, succeeded := goTool("", append([]string{"list", "-f", format}, args...)...)
	require.True(t, succeeded, out)
	return out
}
