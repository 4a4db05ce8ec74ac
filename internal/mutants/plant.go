// Package mutants plants mistakes in the code for the tests of the tests: a suite earns its place
// by finding them. The compiler sees a mistake through an overlay, so no other build contains it.
package mutants

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Swap is one change to a declaration of a package: a function, Type.method, a type, or the first
// name of a var or const. Old is an expression or a statement that occurs exactly once in it,
// regardless of layout and comments. So moving, reformatting or renaming other code breaks no
// mutant.
type Swap struct{ In, Old, New string }

// Mutate applies the changes to the package's files, and returns the texts of the changed files by
// their paths. It fails the test if a change no longer fits.
func Mutate(t testing.TB, dir string, swaps ...Swap) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no Go files in %s: %v", dir, err)
	}
	texts, mutated := map[string]string{}, map[string]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[file] = string(text)
	}
	for _, s := range swaps {
		var fit, seen []string
		for file, text := range texts {
			for _, decl := range declared(t, file, text, s.In) {
				seen = append(seen, file)
				if at := places(text[decl.from:decl.to], s.Old); len(at) == 1 {
					fit = append(fit, file)
					texts[file] = text[:decl.from+at[0].from] + s.New + text[decl.from+at[0].to:]
					mutated[file] = texts[file]
				}
			}
		}
		if len(fit) != 1 {
			t.Fatalf("%s of %s, in %v, has this %s; change the mutant with the code:\n%s", s.In, dir, seen, times(len(fit)), s.Old)
		}
	}
	return mutated
}

func times(fit int) string {
	if fit == 0 {
		return "not once"
	}
	return fmt.Sprintf("once in each of %d places", fit)
}

type span struct{ from, to int }

// places returns the spans of the text with the same Go tokens as old; anything between them that
// the compiler ignores may differ.
func places(text, old string) (at []span) {
	words, wanted := scan(text), scan(old)
	for i := range len(words) - len(wanted) + 1 {
		run := words[i : i+len(wanted)]
		if slices.EqualFunc(run, wanted, func(a, b word) bool { return a.text == b.text }) {
			at = append(at, span{run[0].from, run[len(run)-1].to})
		}
	}
	return at
}

type word struct {
	span
	text string
}

func scan(text string) (words []word) {
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(text))
	s.Init(file, []byte(text), nil, 0) // skips comments
	for {
		pos, tok, lit := s.Scan()
		switch {
		case tok == token.EOF:
			return words
		case tok == token.SEMICOLON && lit == "\n": // the end of a line
			continue
		case lit == "":
			lit = tok.String()
		}
		from := file.Offset(pos)
		words = append(words, word{span{from, from + len(lit)}, lit})
	}
}

// declared returns the spans of the file's declarations of the name.
func declared(t testing.TB, file, text, name string) (spans []span) {
	t.Helper()
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, file, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range f.Decls {
		if nameOf(d) == name {
			spans = append(spans, span{set.Position(d.Pos()).Offset, set.Position(d.End()).Offset})
		}
	}
	return spans
}

func nameOf(d ast.Decl) string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return d.Name.Name
		}
		of := d.Recv.List[0].Type
		if p, ok := of.(*ast.StarExpr); ok {
			of = p.X
		}
		switch g := of.(type) {
		case *ast.IndexExpr:
			of = g.X
		case *ast.IndexListExpr:
			of = g.X
		}
		return of.(*ast.Ident).Name + "." + d.Name.Name
	case *ast.GenDecl:
		if len(d.Specs) == 0 {
			return ""
		}
		switch s := d.Specs[0].(type) {
		case *ast.TypeSpec:
			return s.Name.Name
		case *ast.ValueSpec:
			return s.Names[0].Name
		}
	}
	return ""
}

// Overlay writes the input of the go command's flag -overlay to a directory of its own, and returns
// its path.
func Overlay(t testing.TB, texts map[string]string) string {
	t.Helper()
	dir, replace := t.TempDir(), map[string]string{}
	write := func(name string, data []byte) {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for file, text := range texts {
		file, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		replace[file] = filepath.Join(dir, filepath.Base(file))
		write(replace[file], []byte(text))
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	write(overlay, list)
	return overlay
}
