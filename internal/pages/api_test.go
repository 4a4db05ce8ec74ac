package pages

// This test compares the exported names of the public packages with testdata/api.txt, so that the
// diff of a commit shows each change of the API.

import (
	"fmt"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAPI_EachChangeIsInTheDiff(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the public packages several times: not with -short")
	}
	const page = "internal/pages/testdata/api.txt"
	list, err := exec.Command("go", "list", "-f", `{{if and .GoFiles (ne .Name "main")}}{{.ImportPath}}{{end}}`, "./...").Output()
	require.NoError(t, err)
	public := slices.DeleteFunc(strings.Fields(string(list)), func(pkg string) bool { return strings.Contains(pkg, "/internal/") })
	all := compiled(t, token.NewFileSet(), public...)
	var text strings.Builder
	for _, path := range public {
		pkg, err := all.Import(path)
		require.NoError(t, err)
		fmt.Fprintf(&text, "package %s\n\n%s\n\n", pkg.Name(), strings.Join(exported(pkg), "\n"))
	}
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(text.String()), 0o644))
		return
	}
	require.Equal(t, readFile(t, page), text.String(), "the API is not that of %s: run scripts/api -update, and describe a change in CHANGELOG.md", page)
}

// exported returns a line for each exported name of a package, each exported field and each method.
func exported(pkg *types.Package) (lines []string) {
	short := func(of *types.Package) string { // as a program of the package writes it
		if of == pkg {
			return ""
		}
		return of.Name()
	}
	for _, name := range pkg.Scope().Names() {
		obj := pkg.Scope().Lookup(name)
		if !obj.Exported() {
			continue
		}
		of, isStruct := obj.Type().Underlying().(*types.Struct)
		typ, isType := obj.(*types.TypeName)
		switch value, isConst := obj.(*types.Const); {
		case isConst:
			lines = append(lines, types.ObjectString(obj, short)+" = "+value.Val().ExactString())
		case !isType || typ.IsAlias() || !isStruct:
			lines = append(lines, types.ObjectString(obj, short))
		default:
			lines = append(lines, "type "+name+" struct")
			for f := range of.Fields() {
				if f.Exported() {
					lines = append(lines, fmt.Sprintf("field %s.%s %s", name, f.Name(), types.TypeString(f.Type(), short)))
				}
			}
		}
		if !isType || types.IsInterface(obj.Type()) { // the methods of an interface are in its line
			continue
		}
		values := types.NewMethodSet(obj.Type())
		for m := range types.NewMethodSet(types.NewPointer(obj.Type())).Methods() {
			if !m.Obj().Exported() {
				continue
			}
			of := name
			if values.Lookup(pkg, m.Obj().Name()) == nil {
				of = "*" + name
			}
			lines = append(lines, fmt.Sprintf("method (%s) %s%s", of, m.Obj().Name(), strings.TrimPrefix(types.TypeString(m.Type(), short), "func")))
		}
	}
	return lines
}
