package pages

// These tests compare the pages with the repository: links, pictures, the log lines.

import (
	"errors"
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pages returns the documents of the repository.
func pages(t *testing.T) []string {
	t.Helper()
	names := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "internal/README.md", "packaging/README.md", "examples/README.md", "lab/README.md", "lab/consul/README.md"}
	for _, dir := range contrib(t) {
		names = append(names, dir+"/README.md")
	}
	require.NoError(t, filepath.WalkDir("docs", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			names = append(names, filepath.ToSlash(path))
		}
		return err
	}))
	require.Greater(t, len(names), 10)
	return names
}

// prose returns a page without its fenced code.
func prose(page string) string {
	return regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(page, "")
}

// anchors returns the possible link targets within a page: its headings, as GitHub names them.
func anchors(page string) (names []string) {
	for _, m := range regexp.MustCompile(`(?m)^#{1,6} +(.*?) *$`).FindAllStringSubmatch(prose(page), -1) {
		heading := regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`).ReplaceAllString(m[1], "$1")
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, heading)
		for n, plain := 1, name; slices.Contains(names, name); n++ {
			name = plain + "-" + strconv.Itoa(n)
		}
		names = append(names, name)
	}
	return names
}

// Links within the repository have a target: the file exists, and so does the heading.
func TestDocs_Links(t *testing.T) {
	followed := 0
	for _, name := range pages(t) {
		for _, m := range regexp.MustCompile(`\]\(([^()\s]+)\)`).FindAllStringSubmatch(prose(readFile(t, name)), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			followed++
			path, anchor, anchored := strings.Cut(m[1], "#")
			target := name
			if path != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(name), path))
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, and there is no %s: fix the link", name, m[1], target)
				continue
			}
			if anchored && strings.HasSuffix(target, ".md") && !slices.Contains(anchors(readFile(t, target)), anchor) {
				t.Errorf("%s links to %s, and %s has no heading of that name: fix the link. It has\n  %s", name, m[1], target, strings.Join(anchors(readFile(t, target)), "\n  "))
			}
		}
	}
	require.Greater(t, followed, 50, "links were not found")
}

// Make install puts the pages that the man page and the messages name below share/doc, and each of
// their links leads to a file there.
func TestInstall_LinksOfThePages(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("scripts/install needs bash")
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "program") // it is only copied, and writes an empty man page
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755))
	to := filepath.Join(dir, "to")
	out, err := exec.Command("scripts/install", to, program, program).CombinedOutput()
	require.NoError(t, err, string(out))
	doc := filepath.Join(to, "share/doc/zklock")
	for _, page := range []string{"README.md", "docs/operating.md", "docs/command.md", "docs/lease.md", "packaging/README.md"} {
		require.FileExists(t, filepath.Join(doc, page))
	}
	followed := 0
	require.NoError(t, filepath.WalkDir(doc, func(name string, _ fs.DirEntry, err error) error {
		if !strings.HasSuffix(name, ".md") {
			return err
		}
		text := readFile(t, name)
		require.NotContains(t, text, "]()")
		for _, m := range regexp.MustCompile(`\]\(([^():\s]+)\)`).FindAllStringSubmatch(prose(text), -1) {
			if path, _, _ := strings.Cut(m[1], "#"); path != "" {
				followed++
				_, err := os.Stat(filepath.Join(filepath.Dir(name), path))
				assert.NoError(t, err, "%s links to it", name)
			}
		}
		return nil
	}))
	require.Greater(t, followed, 50, "links were not found")
	require.Contains(t, readFile(t, filepath.Join(doc, "README.md")), "\ndoc.go states all guarantees")
	out, err = exec.Command("scripts/install", "--remove", to).CombinedOutput()
	require.NoError(t, err, string(out))
	require.NoDirExists(t, doc)
}

// Each picture is shown on a page, with a text for readers that do not see it.
func TestDocs_PicturesAreShown(t *testing.T) {
	var shown strings.Builder
	for _, name := range pages(t) {
		shown.WriteString(readFile(t, name))
	}
	for _, pattern := range []string{"docs/*.svg", "docs/*/*.svg"} {
		pictures, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, name := range pictures {
			name = strings.TrimPrefix(filepath.ToSlash(name), "docs/")
			if !regexp.MustCompile(`!\[[^]]+\]\((docs/)?` + regexp.QuoteMeta(name) + `\)`).MatchString(shown.String()) {
				t.Errorf("no page shows docs/%s, with words for those who do not see it", name)
			}
			if !strings.Contains(readFile(t, "docs/"+name), "prefers-color-scheme: dark") {
				t.Errorf("docs/%s has no colours for the dark", name)
			}
		}
	}
}

// logLine is a line that the library logs: its level, and its message as in the source.
type logLine struct{ level, message string }

// logLines returns the library's log lines, by their position.
func logLines(t *testing.T) map[string]logLine {
	t.Helper()
	fset, files := sources(t, slices.DeleteFunc(slices.Clone(packages), func(dir string) bool { return dir == "internal/eventlog" || dir == "internal/mux" })...)
	lines := map[string]logLine{}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			to, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			levels := []string{"Debug", "Info", "Warn", "Error", "Log", "LogAttrs"}
			if !slices.Contains(levels, strings.TrimSuffix(to.Sel.Name, "Context")) || len(call.Args) == 0 {
				return true
			}
			if !isLog(to.X) {
				t.Errorf("%s: %s of a logger is called: log by an eventlog.Log, which a slow handler does not hold up, and which docs/operating.md explains", fset.Position(call.Pos()), to.Sel.Name)
			} else {
				message, err := constant(call.Args[0])
				if err != nil {
					t.Errorf("%s: the message of a log line: %v. Let it begin with a constant text, so that docs/operating.md can explain it", fset.Position(call.Pos()), err)
				}
				lines[fset.Position(call.Pos()).String()] = logLine{strings.ToUpper(to.Sel.Name), message}
			}
			return true
		})
	}
	return lines
}

// isLog reports whether an expression is an eventlog.Log: a field or variable called log or Log.
func isLog(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.SelectorExpr:
		return x.Sel.Name == "log" || x.Sel.Name == "Log"
	case *ast.Ident:
		return x.Name == "log"
	}
	return false
}

// constant returns the text of a literal, or of literals that are added; for a sum with other
// operands, its beginning.
func constant(x ast.Expr) (string, error) {
	switch x := x.(type) {
	case *ast.BasicLit:
		if x.Kind == token.STRING {
			return strconv.Unquote(x.Value)
		}
	case *ast.BinaryExpr:
		left, err := constant(x.X)
		if err != nil || x.Op != token.ADD {
			return "", errors.Join(err, errors.New("not a sum"))
		}
		right, _ := constant(x.Y)
		return left + right, nil
	}
	return "", errors.New("not a constant")
}

// Each log line is in docs/operating.md under its level, with the remedy.
func TestDocs_EveryLogLineIsExplained(t *testing.T) {
	const page = "docs/operating.md"
	sections := regexp.MustCompile(`(?m)^##+ `).Split(readFile(t, page), -1)
	text := strings.Join(strings.Fields(readFile(t, page)), " ")
	lines := logLines(t)
	for at, line := range lines {
		if !strings.Contains(text, "`"+line.message) {
			t.Errorf("%s logs %q, which %s does not have: write there what it means and what to do", at, line.message, page)
		}
		for _, section := range sections {
			level := regexp.MustCompile(`^[A-Z]+\b`).FindString(section)
			if strings.Contains(strings.Join(strings.Fields(section), " "), "**`"+line.message+"`**") && level != line.level {
				t.Errorf("%s logs %q at level %s, and %s explains it under %q: put it where people look for it", at, line.message, line.level, page, level)
			}
		}
	}
	require.GreaterOrEqual(t, len(lines), 13, "log lines were not found")
	// And no line that is not logged any more.
	for _, m := range regexp.MustCompile("\\*\\*`(zklock: [^`]+)`\\*\\*").FindAllStringSubmatch(text, -1) {
		written := false
		for _, line := range lines {
			written = written || line.message == m[1]
		}
		if !written {
			t.Errorf("%s explains %q, which the library does not log: take it out, or fix it", page, m[1])
		}
	}
	const dropped = "recordsDroppedBefore"
	if !strings.Contains(readFile(t, "internal/eventlog/eventlog.go"), `"`+dropped+`"`) || !strings.Contains(text, "`"+dropped+"`") {
		t.Errorf("%s explains %s, which eventlog.go adds to a line: change them together", page, dropped)
	}
}

// Each line that docs/operating.md explains is in a test, which shows when it is logged, and how
// often.
func TestDocs_EveryLogLineHasATest(t *testing.T) {
	var tests strings.Builder
	for _, pattern := range []string{"*_test.go", "test/*_test.go", "internal/link/*_test.go", "internal/node/*_test.go"} {
		names, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, name := range names {
			tests.WriteString(readFile(t, name))
		}
	}
	for at, line := range logLines(t) {
		if strings.HasPrefix(line.message, "zklock: ") && !strings.Contains(tests.String(), `"`+line.message+`"`) {
			t.Errorf("%s logs %q, which is in no test: show that it comes once for each thing that it reports, with many goroutines looking, as the scenes of test/text_log_calls_test.go do", at, line.message)
		}
	}
}

// Each test that a page names exists.
func TestDocs_NamedTestsExist(t *testing.T) {
	exists := map[string]bool{}
	require.NoError(t, filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, "_test.go") {
			for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Example)\w*)\(`).FindAllStringSubmatch(readFile(t, path), -1) {
				exists[m[1]] = true
			}
		}
		return err
	}))
	named := 0
	for _, page := range pages(t) {
		for _, m := range regexp.MustCompile("`((?:Test|Benchmark|Example)[A-Z]\\w*[a-z0-9])`").FindAllStringSubmatch(readFile(t, page), -1) {
			if named++; !exists[m[1]] {
				t.Errorf("%s names %s, and there is no such test: name the one that has its place", page, m[1])
			}
		}
	}
	require.Greater(t, named, 30, "names were not found")
}

// Each test file states at its top what it attacks.
func TestDocs_EveryTestFileStatesItsTarget(t *testing.T) {
	names, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	for _, dir := range slices.Concat([]string{"test", "internal/pages", "fence", "fence/zkfence", "shards"}, contrib(t), packages[1:]) {
		more, err := filepath.Glob(dir + "/*_test.go")
		require.NoError(t, err)
		names = append(names, more...)
	}
	require.NotEmpty(t, names)
	purpose := regexp.MustCompile(`^(//go:build [^\n]*\n\n)?package \w+\n\n// [A-Z][^\n]*\n(//[^\n]*\n)*\nimport`)
	for _, name := range names {
		if !purpose.MatchString(readFile(t, name)) {
			t.Errorf("%s does not begin with a sentence, above its imports, that says what it attacks", name)
		}
	}
}

// `go doc` begins with the functions to call. All promises follow; the glossary is in
// docs/design.md.
func TestDocs_GoDocBeginsWithWhatToCall(t *testing.T) {
	_, files := sources(t)
	text, last := files["doc.go"].Doc.Text(), 0
	for _, part := range []string{"zklock.Connect(", ".Do(ctx", "# What to call", "# What is promised", "I1,", "I2,", "I3,", "I4,", "I5,", "I6,", "I7,", "I8,", "# What is not promised"} {
		at := strings.Index(text, part)
		require.Greater(t, at, last, "%q comes too early, or is not there", part)
		last = at
	}
	require.NotContains(t, text, "# Words")
	require.Contains(t, readFile(t, "docs/design.md"), "## Glossary")
}

// The targets and the parts that pages and workflows name exist.
func TestDocs_MakeTargets(t *testing.T) {
	targets, parts := "\n"+readFile(t, "Makefile"), readFile(t, "scripts/nightly")
	workflows, err := filepath.Glob(".github/workflows/*.yml")
	require.NoError(t, err)
	named := 0
	for _, name := range append(append(pages(t), ".ci/run", "internal/conformance/suites.md"), workflows...) {
		for _, m := range regexp.MustCompile("(?m)(?:^ *|`|true |run: )make ([a-z-]+)(?: PART=([a-z-]+))?").FindAllStringSubmatch(readFile(t, name), -1) {
			named++
			assert.True(t, strings.Contains(targets, "\n"+m[1]+":"), "%s names %s, and the Makefile has no such target", name, m[0])
			isPart := regexp.MustCompile(`(?m)^\t(\S+ \| )*` + m[2] + `( \| \S+)*\)`).MatchString(parts)
			assert.True(t, m[2] == "" || isPart, "%s names %s, and scripts/nightly has no such part", name, m[0])
		}
	}
	require.Greater(t, named, 10)
}
