package pages

// These tests check the comments and examples of exported names.

import (
	"cmp"
	"go/ast"
	"go/doc"
	"go/parser"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// Every exported name has a comment, in every package but internal/wire, whose names are the
// protocol's.
func TestExportedNamesHaveDocComments(t *testing.T) {
	fset, files := sources(t, append(slices.DeleteFunc(slices.Clone(packages), func(pkg string) bool { return pkg == "internal/wire" }), "fence", "fence/zkfence", "shards")...)
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

// The go doc output of the root names no internal package: users can neither import nor look one
// up.
func TestExportedNames_ShowNothingInternal(t *testing.T) {
	fset, files := sources(t, "zklock")
	shown := 0
	for _, f := range files {
		internal := map[string]bool{} // imported, by the name in this file
		for _, imp := range f.Imports {
			if at := strings.Trim(imp.Path.Value, `"`); strings.Contains(at, "/internal/") {
				name := path.Base(at)
				if imp.Name != nil {
					name = imp.Name.Name
				}
				internal[name] = true
			}
		}
		ast.FileExports(f)
		for _, d := range f.Decls {
			fn, isFunc := d.(*ast.FuncDecl)
			if isFunc && fn.Recv != nil && !exportedReceiver(fn) {
				continue
			}
			if isFunc {
				fn.Body = nil
			}
			shown++
			ast.Inspect(d, func(n ast.Node) bool {
				if sel, ok := n.(*ast.SelectorExpr); ok {
					if x, ok := sel.X.(*ast.Ident); ok && internal[x.Name] {
						t.Errorf("%s: go doc shows %s.%s: give it a name of the root", fset.Position(n.Pos()), x.Name, sel.Sel.Name)
					}
				}
				return true
			})
		}
	}
	require.Greater(t, shown, 50, "exported names were not found")
}

// shownBy names the example that shows an exported name without an example of its own.
var shownBy = map[string]string{
	"WithTrace": "Trace", "WithName": "Trace", "AsyncRelease": "Hold_ReleaseAsync",
	"WithContainer": "NewMutex", "WithData": "NewMutex", "WithRevocation": "Session_Revoke",
	"NewElection": "Election_Campaign", "Final": "Election_Run", "Election.Candidates": "Election_Leader",
	"NewSemaphore": "Semaphore_Acquire", "Semaphore.TryAcquire": "Semaphore_Acquire",
	"RWMutex.ReadLock": "NewRWMutex",
	"Mutex.Runs":       "OnceRun",
	"Mutex.Path":       "NewMutex", "Mutex.Held": "Mutex_Do", "Mutex.OwnedBy": "Mutex_Do",
	"Hold.Path": "Hold_Node", "Hold.Owner": "WithOwner", "Owner.String": "NewOwner",
	"Hold.Sequencer": "Session_CheckSequencer", "ParseSequencer": "Session_CheckSequencer", "Sequencer.String": "Session_CheckSequencer",
	"Multi.Acquire": "Multi_TryAcquire", "Multi.TryDo": "Multi_TryAcquire",
	"MultiHold.Holds": "Multi_Do", "MultiHold.Context": "Multi_TryAcquire", "MultiHold.Err": "Multi_TryAcquire",
	"MultiHold.Release": "Multi_TryAcquire",
}

// withoutExample gives the reason why an exported name needs no example.
var withoutExample = map[string]string{
	"Error.Error":  "fmt calls it: see the output of ExampleWithACL",
	"Error.Unwrap": "errors.Is and errors.As call it: see ExampleError",
	"Hold.String":  "fmt calls it: see ExampleMutex_String",

	"Election.String":  "fmt calls it: see ExampleMutex_String",
	"Session.String":   "fmt calls it: see ExampleMutex_String",
	"LeaseMode.String": "fmt calls it: see the output of ExampleLeaseMode_Margin",
	"State.String":     "fmt calls it: see the output of ExampleState",
	"WithTLS":          "its example has no output, and does not run: it takes a server with TLS",
	"WithTLSFiles":     "its example has no output, and does not run: it takes a server with TLS",
}

// Every exported function, method and type has an example that runs, or one of the lists above
// names the example that shows it or the reason why there is none. A function that returns a type,
// or a method of it, also shows the type.
func TestExportedNamesHaveExamples(t *testing.T) {
	fset, files := sources(t, "zklock")
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
		shown := has(typ.Name) || slices.ContainsFunc(slices.Collect(maps.Values(examples)), func(e *doc.Example) bool { return mentions(e, typ.Name) })
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

// mentions reports whether an example names a type, or the method that returns it and is called
// directly.
func mentions(e *doc.Example, name string) (found bool) {
	ast.Inspect(e.Code, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		found = found || ok && sel.Sel.Name == name
		return true
	})
	return found
}

// calls reports whether an example calls a function or method of that name.
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
