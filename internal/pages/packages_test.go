package pages

// These tests check the imports of the library's packages, and compare internal/README.md with the
// packages.

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write what tests compare: the table in internal/README.md, and testdata/api.txt")

const module = "github.com/zklock/zklock"

// packages are the library's packages, in an order in which each may use those after it.
var packages = []string{
	"zklock",
	"sasl",
	"internal/hook", "internal/sessionfile", "internal/guard",
	"internal/node", "internal/link",
	"internal/dial", "internal/lease", "internal/queue",
	"internal/reply", "internal/eventlog", "internal/certs",
	"internal/mux", "internal/lastzxid", "internal/expire", "internal/sessionkey", "internal/sasl", "internal/secret", "internal/wire", "internal/clock", "internal/invariants", "internal/fscall",
}

// shortName returns the name that internal/README.md gives a package. The public sasl has the name
// of the one that it wraps.
func shortName(pkg string) string {
	if pkg == "sasl" {
		return "public sasl"
	}
	return path.Base(pkg)
}

// dir returns the directory of a package, relative to the repository's root.
func dir(pkg string) string {
	if pkg == "zklock" {
		return "."
	}
	return pkg
}

// pure lists the packages that decide, with all imports that they may have. No input, lock or clock
// reaches a rule that a table test specifies.
var pure = map[string][]string{
	"internal/lease": {"errors", "fmt", "time", module + "/internal/clock"},
	"internal/queue": {"cmp", "math/bits", "slices", "strings", "unicode", "unicode/utf8"},
	"internal/reply": {"errors", "fmt", "slices", "github.com/go-zookeeper/zk", module + "/internal/mux", module + "/internal/wire"},
}

// impure matches the calls that a pure package must not make, although it may import their
// packages.
var impure = regexp.MustCompile(`^(time\.(Now|Since|Until|After|AfterFunc|NewTimer|NewTicker|Sleep|Tick)|clock\.New|tap\.New|zk\.Connect)$`)

// banned lists names that no package may use, by package and name.
var banned = map[string]string{
	"zk.NewLock":     "it grants without owning a node; this package is what to use instead",
	"zk.WithLogInfo": "it makes the client log for itself; internal/eventlog passes its lines on",
}

// The number of go statements (and WaitGroup.Go calls) in a file. Every goroutine has an owner that
// waits for it.
var goroutines = map[string]int{
	"internal/eventlog/eventlog.go":       1, // writes to the user's log handler, which may block; Close waits for it a little
	"internal/fscall/fscall.go":           1, // a call of the file system, which may hang: no caller waits for it beyond its context
	"internal/guard/guard.go":             1, // waits for a guard, which may be stopped; Close waits for it, and for no guard
	"internal/link/link.go":               2, // spawn, which all other goroutines use; the wait for the client's own end
	"internal/sessionfile/sessionfile.go": 1, // writes to a file system that may hang: Close and Connect wait for them a little
	"session.go":                          1, // the Close of a Connect in vain
	"trace.go":                            2, // the user's HoldLost, and HoldEnd after ReleaseAsync, for which Close does not wait
	"participants.go":                     2, // reads in flight, waited for before it returns; the user's function of WithRevocation, for which Close does not wait
}

// The tests of this package run in the repository's root.
func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// sources returns the library's files by path: of all its packages, unless some are named.
func sources(t *testing.T, of ...string) (*token.FileSet, map[string]*ast.File) {
	t.Helper()
	if of == nil {
		of = packages
	}
	fset, files := token.NewFileSet(), map[string]*ast.File{}
	for _, pkg := range of {
		names, err := filepath.Glob(dir(pkg) + "/*.go")
		require.NoError(t, err)
		require.NotEmpty(t, names, pkg)
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			name = filepath.ToSlash(filepath.Clean(name))
			files[name], err = parser.ParseFile(fset, name, nil, parser.ParseComments)
			require.NoError(t, err)
		}
	}
	return fset, files
}

// listed is the go command's output about a package that the library needs.
type listed struct {
	ImportPath string
	Imports    []string
	Module     *struct{ Path string }
}

// list returns the packages that an import of the package in a directory brings in on a system.
func list(t *testing.T, goos, dir string) (all []listed) {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Imports,Module", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS="+goos, "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p listed
		require.NoError(t, dec.Decode(&p))
		all = append(all, p)
	}
	return all
}

// ours returns the name of a package of the library, or "" for another.
func ours(importPath string) string {
	if importPath == module {
		return "zklock"
	}
	name, _ := strings.CutPrefix(importPath, module+"/")
	if name == importPath {
		return ""
	}
	return name
}

// The table of packages in internal/README.md matches the go command's output, and no arrow in it
// points up.
func TestPackages_Table(t *testing.T) {
	const page, begin, end = "internal/README.md", "| package | uses |\n|---|---|\n", "\n\n"
	rows := map[string]string{}
	for _, p := range list(t, "linux", ".") {
		name := ours(p.ImportPath)
		if name == "" {
			continue
		}
		place := slices.Index(packages, name)
		require.GreaterOrEqual(t, place, 0, "%s has no place: put it into packages, as low as it can be", name)
		var uses []string
		for _, imp := range p.Imports {
			if used := ours(imp); used != "" {
				if slices.Index(packages, used) < place {
					t.Errorf("%s uses %s, which stands above it in packages. Hand the value in as an argument, or move it down", name, used)
				}
				uses = append(uses, shortName(used))
			}
		}
		rows[name] = fmt.Sprintf("| [%s](../%s) | %s |", shortName(name), strings.TrimPrefix(dir(name), "."), strings.Join(uses, ", "))
	}
	var table []string
	for _, name := range packages {
		require.Contains(t, rows, name, "the library does not use %s: take it out of packages", name)
		table = append(table, rows[name])
	}
	text := readFile(t, page)
	before, rest, found := strings.Cut(text, begin)
	require.True(t, found, "%s has no table of packages", page)
	_, after, _ := strings.Cut(rest, end)
	want := before + begin + strings.Join(table, "\n") + end + after
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, text, "the table of packages is not what there is: run go test ./internal/pages -update")
}

// An importer of the library downloads these modules, and no others; modules for tests are not
// among them.
func TestDependencies(t *testing.T) {
	for _, goos := range []string{"linux", "darwin", "windows", "freebsd"} {
		for _, p := range list(t, goos, ".") {
			if p.Module != nil && !slices.Contains([]string{module, "github.com/go-zookeeper/zk", "github.com/google/uuid"}, p.Module.Path) {
				t.Errorf("%s: the library brings in %s of module %s: do without it, or move what needs it into a package or module of its own",
					goos, p.ImportPath, p.Module.Path)
			}
			if name := ours(p.ImportPath); name != "" && !slices.Contains(packages, name) || p.ImportPath == "testing" {
				t.Errorf("%s: the library brings in %s", goos, p.ImportPath)
			}
		}
	}
}

// The supervisor of processes does not depend on locks or on ZooKeeper.
func TestDependencies_SuperviseKnowsNoZooKeeper(t *testing.T) {
	for _, goos := range []string{"linux", "darwin", "windows"} {
		for _, p := range list(t, goos, "cmd/zklock/internal/supervise") {
			if name := ours(p.ImportPath); name != "" && name != "cmd/zklock/internal/supervise" || p.Module != nil && strings.Contains(p.Module.Path, "zookeeper") {
				t.Errorf("%s: the supervisor brings in %s: hand it in as a value, or a function", goos, p.ImportPath)
			}
		}
	}
}

// contrib returns the folders of the modules that other projects import in addition to the library.
func contrib(t *testing.T) (dirs []string) {
	t.Helper()
	mods, err := filepath.Glob("contrib/*/go.mod")
	require.NoError(t, err)
	require.NotEmpty(t, mods)
	for _, mod := range mods {
		dirs = append(dirs, path.Dir(filepath.ToSlash(mod)))
	}
	return dirs
}

// Each module of contrib/ is named as it is imported, and uses only the library's exported names:
// other modules would lack the same names. The README links to it.
func TestContrib_ModulesAreLikeOthers(t *testing.T) {
	readme := readFile(t, "README.md")
	for _, dir := range contrib(t) {
		require.Contains(t, readFile(t, dir+"/go.mod"), "module "+module+"/"+dir+"\n")
		require.Contains(t, readme, "]("+dir+")", "README.md: link to each module from the list of features")
		require.NoError(t, filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") { // tests in virtual time need internal/hook
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
			require.NoError(t, err)
			for _, imp := range f.Imports {
				if strings.HasPrefix(imp.Path.Value, `"`+module+`/internal/`) {
					t.Errorf("%s imports %s: do with what the root exports", name, imp.Path.Value)
				}
			}
			return nil
		}))
	}
}

// Package fence is for any lock with a token: it brings in nothing but Go's standard library.
func TestDependencies_FenceIsStandardLibraryOnly(t *testing.T) {
	fset, files := sources(t, "fence")
	for _, f := range files {
		for _, imp := range f.Imports {
			if name := strings.Trim(imp.Path.Value, `"`); strings.Contains(name, ".") {
				t.Errorf("%s: fence imports %s: take a function instead", fset.Position(imp.Pos()), name)
			}
		}
	}
}

// Package shards is a user of the library: other users need the same functions.
func TestDependencies_ShardsIsTheLibrarysUser(t *testing.T) {
	fset, files := sources(t, "shards")
	for _, f := range files {
		for _, imp := range f.Imports {
			if name := strings.Trim(imp.Path.Value, `"`); strings.Contains(name, ".") && name != module && name != "github.com/go-zookeeper/zk" {
				t.Errorf("%s: shards imports %s: do without it, or have the root export it", fset.Position(imp.Pos()), name)
			}
		}
	}
	require.NotEmpty(t, files)
}

// Package zkfence brings in the library, package fence, and nothing else but Go's standard library.
func TestDependencies_ZkfenceIsTheLibraryAndFence(t *testing.T) {
	fset, files := sources(t, "fence/zkfence")
	for _, f := range files {
		for _, imp := range f.Imports {
			if name := strings.Trim(imp.Path.Value, `"`); strings.Contains(name, ".") && name != module && name != module+"/fence" {
				t.Errorf("%s: zkfence imports %s: do without it", fset.Position(imp.Pos()), name)
			}
		}
	}
}

// Packages that decide are pure: facts in, conclusions out.
func TestPackages_Purity(t *testing.T) {
	for pkg, allowed := range pure {
		fset, files := sources(t, pkg)
		for _, f := range files {
			for _, imp := range f.Imports {
				name, err := strconv.Unquote(imp.Path.Value)
				require.NoError(t, err)
				if !slices.Contains(allowed, name) {
					t.Errorf("%s: %s must not import %s: decide there, and act above", fset.Position(imp.Pos()), pkg, name)
				}
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if call := selector(n); impure.MatchString(call) {
					t.Errorf("%s: %s is pure: take what it knows as an argument instead of %s", fset.Position(n.Pos()), pkg, call)
				}
				return true
			})
		}
	}
	// Code on the client's goroutines neither waits nor calls back.
	fset, files := sources(t, "internal/mux")
	for _, f := range files {
		for _, imp := range f.Imports {
			if slices.Contains([]string{`"context"`, `"github.com/go-zookeeper/zk"`}, imp.Path.Value) {
				t.Errorf("%s: internal/mux must not import %s", fset.Position(imp.Pos()), imp.Path.Value)
			}
		}
	}
}

// selector returns "x.name" of a selector on an identifier or on a field x.
func selector(n ast.Node) string {
	sel, ok := n.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	switch x := sel.X.(type) {
	case *ast.Ident:
		return x.Name + "." + sel.Sel.Name
	case *ast.SelectorExpr:
		return x.Sel.Name + "." + sel.Sel.Name
	}
	return ""
}

// Our requests are our own frames: of the client's methods, the library calls only Close. All other
// methods have no context, may be sent in the next ZooKeeper session, and do not report whether
// they were.
func TestPackages_BannedCalls(t *testing.T) {
	fset, files := sources(t)
	client := map[string]bool{} // the methods, of each field and parameter that is a client
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			if field, ok := n.(*ast.Field); ok {
				if star, ok := field.Type.(*ast.StarExpr); ok && selector(star.X) == "zk.Conn" {
					for _, name := range field.Names {
						for conn, i := reflect.TypeFor[*zk.Conn](), 0; i < conn.NumMethod(); i++ {
							client[name.Name+"."+conn.Method(i).Name] = true
						}
					}
				}
			}
			return true
		})
	}
	closes := 0
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			call := selector(n)
			if why, bad := banned[call]; bad {
				t.Errorf("%s: do not use %s: %s", fset.Position(n.Pos()), call, why)
			}
			if client[call] && strings.HasSuffix(call, ".Close") {
				closes++
			} else if client[call] {
				t.Errorf("%s: %s of the client is called: ask in the ZooKeeper session", fset.Position(n.Pos()), call)
			}
			return true
		})
	}
	require.Positive(t, closes, "not even Close was seen")
}

func TestPackages_Goroutines(t *testing.T) {
	_, files := sources(t)
	got := map[string]int{}
	for name, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				got[name]++
			case *ast.CallExpr:
				if sel, ok := n.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Go" {
					got[name]++
				}
			}
			return true
		})
	}
	require.Equal(t, goroutines, got, "start goroutines with Spawn of internal/link, so that Close waits for them; one that cannot is listed here, with its reason")
}
