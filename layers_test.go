package zklock_test

// These tests hold the source files to their layers, and the public names to their comments and examples.

import (
	"cmp"
	"encoding/json"
	"go/ast"
	"go/doc"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// Which files and packages may import what. Everything else is for all.
var imports = map[string]struct{ only, not []string }{
	"queue.go":   {only: []string{"slices", "strconv", "strings", "cmp"}}, // pure: children in, place out; evidence in, ruling out
	"walk.go":    {only: []string{}},                                      // pure: where it stands and what was found in, what is next out
	"fate.go":    {only: []string{internal + "tap"}},                      // pure: outcome in, what to do out
	"lease.go":   {only: []string{"fmt", "time", internal + "clock"}},     // pure: exchanges in, deadline out
	"silence.go": {only: []string{"time", internal + "clock"}},            // pure: times in, time out
	"state.go":   {only: []string{"time"}},                                // pure: state and event in, state out

	"internal/clock/clock.go": {only: []string{"time"}},
	"internal/clock":          {not: []string{"context", "sync"}},

	"internal/tap": {not: []string{"context", "github.com/go-zookeeper/zk"}}, // on the client's goroutines: nothing to wait for or call
}

const internal = "github.com/zklock/zklock/internal/"

// How many go statements (and WaitGroup.Go calls) a file has. Every goroutine has an owner that waits for it.
var goroutines = map[string]int{
	"log.go":          1, // writes to the user's log handler, which may block; Close waits for it a little
	"link.go":         1, // spawn, which all others use
	"session.go":      3, // the loop; the watch over the client's own end; the Close of a Connect in vain
	"revoke.go":       1, // the user's callback, for which Close does not wait
	"participants.go": 1, // reads in flight; waited for before it returns
}

// sources returns the library's files; with those of packages that were a part of it.
func sources(t *testing.T, packages ...string) (*token.FileSet, map[string]*ast.File) {
	t.Helper()
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, dir := range packages {
		more, err := filepath.Glob(dir + "/*.go")
		require.NoError(t, err)
		require.NotEmpty(t, more)
		names = append(names, more...)
	}
	fset, files := token.NewFileSet(), map[string]*ast.File{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		require.NoError(t, err)
		files[name] = f
	}
	return fset, files
}

// layers are the files in the order in which they may know each other, lowest first: what a file declares, its methods and fields
// included, is for its own layer and for those after it.
var layers = []struct {
	name  string
	files []string
}{
	{"bottom", []string{"errors.go", "dialerror.go", "log.go", "secret.go"}},
	{"pure", []string{"queue.go", "walk.go", "fate.go", "lease.go", "silence.go", "state.go"}},
	{"wire", []string{"names.go"}},
	{"ZooKeeper session", []string{"zksession.go", "list.go", "turn.go", "protection.go", "watcher.go", "beat.go", "era.go"}},
	{"locks", []string{"root.go", "lockdata.go", "hold.go", "options.go", "dial.go", "changes.go", "link.go", "report.go", "session.go", "revoke.go", "attempt.go", "mutex.go", "participants.go"}},
	{"words", []string{"doc.go"}},
}

// rooms are the files of all layers.
var rooms = func() (files []string) {
	for _, l := range layers {
		files = append(files, l.files...)
	}
	return files
}()

func layerOf(file string) int {
	return slices.IndexFunc(layers, func(l struct {
		name  string
		files []string
	}) bool {
		return slices.Contains(l.files, file)
	})
}

// Nobody looks up, as the compiler sees it: types, methods and fields included.
func TestLayers_NobodyLooksUp(t *testing.T) {
	_, files := sources(t)
	for name := range files {
		if !slices.Contains(rooms, name) {
			t.Errorf("%s has no place: put it into layers, as low as it can be", name)
		}
	}
	fset, uses := checked(t)
	seen := 0
	for id, obj := range uses {
		if obj.Pkg() == nil || obj.Pkg().Path() != "github.com/zklock/zklock" {
			continue
		}
		seen++
		from, to := fset.Position(id.Pos()).Filename, fset.Position(obj.Pos()).Filename
		if layerOf(from) < layerOf(to) {
			t.Errorf("%s: %s uses %s of %s, which comes after it. Hand the value in as an argument, or move it down; see CONTRIBUTING.md",
				fset.Position(id.Pos()), from, obj.Name(), to)
		}
	}
	require.Greater(t, seen, 1000, "names were not resolved")
}

// Requests of ours are frames of ours: of the client's methods, the library calls these. The others have no context, may go out
// in the next ZooKeeper session, and leave it open whether they did.
func TestLayers_NoRequestsThroughTheClient(t *testing.T) {
	allowed := []string{"Close"}
	fset, uses := checked(t)
	seen := 0
	for id, obj := range uses {
		f, ok := obj.(*types.Func)
		if !ok || !strings.HasPrefix(f.FullName(), "(*github.com/go-zookeeper/zk.Conn).") {
			continue
		}
		seen++
		if !slices.Contains(allowed, f.Name()) {
			t.Errorf("%s: %s of the client is called: ask in the ZooKeeper session (zksession.go), or watch and list by watcher.go and list.go", fset.Position(id.Pos()), f.Name())
		}
	}
	require.Positive(t, seen, "not even Close was seen")
}

// checked returns what each identifier of the library means, as the compiler sees it on Linux.
func checked(t *testing.T) (*token.FileSet, map[*ast.Ident]types.Object) {
	t.Helper()
	fset, files := sources(t)
	var parsed []*ast.File
	for _, name := range rooms {
		require.Contains(t, files, name)
		parsed = append(parsed, files[name])
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	_, err := (&types.Config{Importer: exports(t, fset)}).Check("github.com/zklock/zklock", fset, parsed, info)
	require.NoError(t, err)
	return fset, info.Uses
}

// exports imports what the package imports, from the compiler's export data.
func exports(t *testing.T, fset *token.FileSet) types.Importer {
	t.Helper()
	out, err := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", ".").Output()
	require.NoError(t, err)
	at := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if path, file, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			at[path] = file
		}
	}
	return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(at[path]) })
}

func TestLayers_Imports(t *testing.T) {
	fset, files := sources(t, "internal/tap", "internal/clock")
	packages := map[string][]*ast.File{}
	for name, f := range files {
		packages[name] = append(packages[name], f)
		if dir := filepath.Dir(name); dir != "." {
			packages[dir] = append(packages[dir], f)
		}
	}
	for name, rule := range imports {
		require.NotEmpty(t, packages[name], name)
		for _, f := range packages[name] {
			for _, imp := range f.Imports {
				path, err := strconv.Unquote(imp.Path.Value)
				require.NoError(t, err)
				if rule.only != nil && !slices.Contains(rule.only, path) || slices.Contains(rule.not, path) {
					t.Errorf("%s: %s must not import %s. Decide there, and act in a file above: no I/O, lock or clock may reach a rule that a table test specifies",
						fset.Position(imp.Pos()), name, path)
				}
			}
		}
	}
	for _, f := range files {
		for _, imp := range f.Imports {
			if strings.Contains(imp.Path.Value, "/zklock/zktest") || strings.Contains(imp.Path.Value, "testing") {
				t.Errorf("%s: the library must not import what is for tests", fset.Position(imp.Pos()))
			}
		}
	}
}

// What is wrong wherever it stands, by package and name.
var banned = map[string]string{
	"zk.NewLock":     "it grants without owning a node; this package is what to use instead",
	"zk.WithLogInfo": "it makes the client log for itself; eventLog passes its lines on",
}

func TestLayers_BannedCalls(t *testing.T) {
	fset, files := sources(t, "internal/tap", "internal/clock")
	for name, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pos := fset.Position(sel.Pos())
			if pkg, ok := sel.X.(*ast.Ident); ok {
				call := pkg.Name + "." + sel.Sel.Name
				if why, bad := banned[call]; bad {
					t.Errorf("%s: do not use %s: %s", pos, call, why)
				}
				pure := slices.Contains([]string{"lease.go", "queue.go", "walk.go", "fate.go", "silence.go", "state.go"}, name)
				if pure && (pkg.Name == "clock" && sel.Sel.Name == "New" || pkg.Name == "tap" && sel.Sel.Name == "New") {
					t.Errorf("%s: %s is pure: take what it knows as an argument instead of %s", pos, name, call)
				}
				if pure && pkg.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Sleep", "Tick"}, sel.Sel.Name) {
					t.Errorf("%s: %s is pure: take the clock.Instant as an argument instead of %s", pos, name, call)
				}
			}
			return true
		})
	}
}

func TestLayers_Goroutines(t *testing.T) {
	_, files := sources(t, "internal/tap", "internal/clock")
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
	require.Equal(t, goroutines, got, "start goroutines with spawn of link.go, so that Close waits for them; one that cannot is listed here, with its reason")
}

// Every exported name says what it promises.
func TestExportedNamesHaveDocComments(t *testing.T) {
	fset, files := sources(t)
	missing := func(n ast.Node, name string) {
		t.Errorf("%s: %s is exported and has no doc comment: say what it does, what it returns when it fails, and what is still true then", fset.Position(n.Pos()), name)
	}
	for _, f := range files {
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && d.Doc == nil && (d.Recv == nil || exportedReceiver(d)) {
					missing(d, d.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						if spec.Name.IsExported() && cmp.Or(spec.Doc, d.Doc) == nil {
							missing(spec, spec.Name.Name)
						}
					case *ast.ValueSpec:
						for _, name := range spec.Names {
							if name.IsExported() && spec.Doc == nil && spec.Comment == nil && (d.Lparen.IsValid() || d.Doc == nil) {
								missing(name, name.Name)
							}
						}
					}
				}
			}
		}
	}
}

func exportedReceiver(d *ast.FuncDecl) bool {
	typ := d.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	id, ok := typ.(*ast.Ident)
	return ok && id.IsExported()
}

// shownBy names the example that shows an exported name which has none of its own.
var shownBy = map[string]string{
	"WithContainer": "NewMutex", "WithData": "NewMutex", "WithRevocation": "Revoke", "OwnerFrom": "NewOwner",
	"Mutex.Path": "NewMutex", "Mutex.Held": "Mutex_Do", "Mutex.OwnedBy": "Mutex_Do",
	"Hold.Path": "Hold_Node", "Hold.Owner": "WithOwner", "Owner.String": "NewOwner",
	"Session.Timeout": "WithSessionTimeout",
}

// withoutExample says why an exported name needs no example.
var withoutExample = map[string]string{
	"Error.Error":   "fmt calls it: see the output of ExampleWithACL",
	"Error.Unwrap":  "errors.Is and errors.As call it: see ExampleError",
	"Hold.GoString": "fmt calls it: see ExampleMutex_String",
	"Hold.LogValue": "log/slog calls it: see ExampleMutex_String",
	"Hold.String":   "fmt calls it: see ExampleMutex_String",

	"Mutex.LogValue":   "log/slog calls it: see ExampleMutex_String",
	"Session.GoString": "fmt calls it: see ExampleMutex_String",
	"Session.LogValue": "log/slog calls it: see ExampleMutex_String",
	"Session.String":   "fmt calls it: see ExampleMutex_String",
	"LeaseMode.String": "fmt calls it: see the output of ExampleLeaseRoom",
	"State.String":     "fmt calls it: see the output of ExampleState_Attached",
	"WithTLS":          "its example has no output, and does not run: it takes a server with TLS",
}

// Every exported function, method and type has an example that runs, or one of the lists above says what shows it or why none
// does. A function that returns a type, or a method of it, shows the type too.
func TestExportedNamesHaveExamples(t *testing.T) {
	fset, files := sources(t)
	tests, err := filepath.Glob("example*_test.go")
	require.NoError(t, err)
	require.NotEmpty(t, tests)
	examples := map[string]*doc.Example{} // those that run
	for _, name := range tests {
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		require.NoError(t, err)
		for _, e := range doc.Examples(f) {
			if e.Output != "" || e.EmptyOutput {
				examples[e.Name] = e
			}
		}
	}
	library, err := doc.NewFromFiles(fset, slices.Collect(maps.Values(files)), "github.com/zklock/zklock")
	require.NoError(t, err)

	names := map[string]bool{}
	has := func(name string) bool {
		own := strings.ReplaceAll(name, ".", "_")
		for e := range examples {
			suffix, longer := strings.CutPrefix(e, own+"_")
			if e == own || longer && unicode.IsLower(rune(suffix[0])) {
				return true
			}
		}
		return false
	}
	check := func(name string) (shown bool) {
		names[name] = true
		by, isShown := shownBy[name]
		reason := withoutExample[name]
		switch {
		case has(name):
			if isShown || reason != "" {
				t.Errorf("%s has an example of its own: take it off the list", name)
			}
			return true
		case isShown:
			if examples[by] == nil || !calls(examples[by], name[strings.Index(name, ".")+1:]) {
				t.Errorf("%s is said to be shown by Example%s, which does not run or does not call it: write an example of its own", name, by)
			}
			return true
		case reason == "":
			t.Errorf("%s has no example that runs: write Example%s with an Output, in example_test.go or example_session_test.go; or name the example that shows it in shownBy",
				name, strings.ReplaceAll(name, ".", "_"))
		}
		return false
	}
	for _, fn := range library.Funcs {
		check(fn.Name)
	}
	for _, typ := range library.Types {
		shown := has(typ.Name)
		for _, fn := range typ.Funcs {
			shown = check(fn.Name) || shown
		}
		for _, m := range typ.Methods {
			shown = check(typ.Name+"."+m.Name) || shown
		}
		if !shown {
			t.Errorf("%s has no example that runs, and no function or method shows it: write Example%s with an Output", typ.Name, typ.Name)
		}
	}
	require.Greater(t, len(names), 50, "exported names were not found")
	for _, name := range slices.Concat(slices.Collect(maps.Keys(shownBy)), slices.Collect(maps.Keys(withoutExample))) {
		if !names[name] {
			t.Errorf("%s is on a list, and the package exports no such function or method: take it off", name)
		}
	}
}

// calls says whether an example calls a function or method of that name.
func calls(e *doc.Example, name string) (found bool) {
	ast.Inspect(e.Code, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if f, ok := call.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == name {
				found = true
			}
		}
		return true
	})
	return found
}

// An importer of the package is made to download these modules, and no more.
func TestDependencies(t *testing.T) {
	allowed := []string{"github.com/zklock/zklock", "github.com/go-zookeeper/zk", "github.com/google/uuid"}
	for _, goos := range []string{"linux", "darwin", "windows", "freebsd"} {
		cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Module", ".")
		cmd.Env = append(os.Environ(), "GOOS="+goos, "CGO_ENABLED=0")
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		require.NoError(t, err)
		for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
			var p struct {
				ImportPath string
				Module     *struct{ Path string }
			}
			require.NoError(t, dec.Decode(&p))
			if p.Module != nil && !slices.Contains(allowed, p.Module.Path) {
				t.Errorf("%s: the package brings in %s of module %s: do without it, or move what needs it into a package or module of its own",
					goos, p.ImportPath, p.Module.Path)
			}
			ours, inside := strings.CutPrefix(p.ImportPath, "github.com/zklock/zklock/")
			if inside && !slices.Contains([]string{"internal/clock", "internal/expire", "internal/hook", "internal/wire", "internal/lastzxid", "internal/tap", "internal/sessionkey"}, ours) {
				t.Errorf("%s: the package brings in %s", goos, p.ImportPath)
			}
		}
	}
}
