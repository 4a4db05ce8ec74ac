package mutants

// The random mode changes one place of the code with one of ten operators.

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// edit replaces the bytes [from, to) of a file by text.
type edit struct {
	from, to int
	text     string
}

// operators are the names of the changes, in the order in which a seed chooses among them.
var operators = []string{
	"negate a condition", "drop a call", "swap < and <=", "change a constant by 1", "drop a defer",
	"return early without an error", "drop an else branch", "swap && and ||", "remove a !", "drop an assignment",
}

var swapped = map[token.Token]string{
	token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">", token.LAND: "||", token.LOR: "&&",
}

// mutations returns the edits that each operator can make in a file. It leaves out the code that
// only a build with the tag invariants contains.
func mutations(t testing.TB, name, text string) map[string][]edit {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
	require.NoError(t, err)
	found := map[string][]edit{}
	offset := func(p token.Pos) int { return set.Position(p).Offset }
	source := func(n ast.Node) string { return text[offset(n.Pos()):offset(n.End())] }
	add := func(operator string, from, to token.Pos, text string) {
		found[operator] = append(found[operator], edit{offset(from), offset(to), text})
	}
	negate := func(cond ast.Expr) { add("negate a condition", cond.Pos(), cond.End(), "!("+source(cond)+")") }
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt:
			if source(n.Cond) == "invariants.Enabled" {
				return false
			}
			negate(n.Cond)
			if n.Else != nil {
				add("drop an else branch", n.Body.End(), n.Else.End(), "")
			}
		case *ast.ForStmt:
			if n.Cond != nil {
				negate(n.Cond)
			}
		case *ast.ExprStmt:
			if _, isCall := n.X.(*ast.CallExpr); isCall {
				add("drop a call", n.Pos(), n.End(), "")
			}
		case *ast.BinaryExpr:
			operator := "swap < and <="
			if n.Op == token.LAND || n.Op == token.LOR {
				operator = "swap && and ||"
			}
			if to, ok := swapped[n.Op]; ok {
				add(operator, n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), to)
			}
		case *ast.BasicLit:
			if n.Kind == token.INT {
				add("change a constant by 1", n.Pos(), n.End(), "("+n.Value+"+1)")
				add("change a constant by 1", n.Pos(), n.End(), "("+n.Value+"-1)")
			}
		case *ast.DeferStmt:
			add("drop a defer", n.Pos(), n.End(), "")
		case *ast.FuncDecl:
			if zero := withoutError(n.Type, source); zero != "" && n.Body != nil {
				for _, s := range n.Body.List {
					add("return early without an error", s.Pos(), s.Pos(), zero+"; ")
				}
			}
		case *ast.UnaryExpr:
			if n.Op == token.NOT {
				add("remove a !", n.OpPos, n.OpPos+1, "")
			}
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				add("drop an assignment", n.Pos(), n.End(), "")
			}
		case *ast.IncDecStmt:
			add("drop an assignment", n.Pos(), n.End(), "")
		}
		return true
	})
	return found
}

// withoutError returns the statement that ends a function with zero values, or "" if its last
// result is no error.
func withoutError(f *ast.FuncType, source func(ast.Node) string) string {
	if f.Results == nil || source(f.Results.List[len(f.Results.List)-1].Type) != "error" {
		return ""
	}
	var zero []string
	for _, r := range f.Results.List {
		for range max(1, len(r.Names)) {
			zero = append(zero, fmt.Sprintf("*new(%s)", source(r.Type)))
		}
	}
	zero[len(zero)-1] = "nil"
	return "return " + strings.Join(zero, ", ")
}

// Each operator makes exactly the changes that its name promises, and none in a check of the
// invariants.
func TestOperators_EditsOfEach(t *testing.T) {
	const head = "package p\nfunc f(a, b int, c, d bool) (int, error) { "
	for _, c := range []struct {
		operator, body string
		want           []string
	}{
		{"negate a condition", "if c { }; for d { }; for range a { }; if invariants.Enabled { if c { } }", []string{
			"if !(c) { }; for d { }; for range a { }; if invariants.Enabled { if c { } }",
			"if c { }; for !(d) { }; for range a { }; if invariants.Enabled { if c { } }"}},
		{"drop a call", "g(); h := g(); go g()", []string{"; h := g(); go g()"}},
		{"swap < and <=", "_ = a < b == (a >= b) != (a == b)", []string{
			"_ = a <= b == (a >= b) != (a == b)", "_ = a < b == (a > b) != (a == b)"}},
		{"change a constant by 1", `_ = "1"; _ = 7`, []string{`_ = "1"; _ = (7+1)`, `_ = "1"; _ = (7-1)`}},
		{"drop a defer", "defer g(); go g()", []string{"; go g()"}},
		{"return early without an error", "g(); return 1, err", []string{
			"return *new(int), nil; g(); return 1, err", "g(); return *new(int), nil; return 1, err"}},
		{"drop an else branch", "if c { } else if d { }", []string{"if c { }"}},
		{"swap && and ||", "_ = c && d", []string{"_ = c || d"}},
		{"remove a !", "_ = !c || -a < b", []string{"_ = c || -a < b"}},
		{"drop an assignment", "x := a; x = b; x++", []string{"x := a; ; x++", "x := a; x = b; "}},
	} {
		require.Contains(t, operators, c.operator)
		text := head + c.body + " }\n"
		var got []string
		for _, e := range mutations(t, "p.go", text)[c.operator] {
			mutated := text[:e.from] + e.text + text[e.to:]
			got = append(got, strings.TrimSuffix(strings.TrimPrefix(mutated, head), " }\n"))
		}
		require.Equal(t, c.want, got, c.operator)
	}
	require.Empty(t, mutations(t, "p.go", "package p\nfunc f() int { return g() }\n"))
}
