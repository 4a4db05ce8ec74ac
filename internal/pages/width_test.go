package pages

// This test keeps the comments of all Go files at a width that a reader's window has.

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// widest is the most columns of a line of prose in a comment. An indented line, such as code or a
// table, and the expected output of an example may be wider.
const widest = 100

var (
	proseLine  = regexp.MustCompile(`^\t*// ?\S`)
	outputLine = regexp.MustCompile(`^\t*// (Unordered output|Output):`)
)

// wideComments returns the numbers of the lines that are too wide.
func wideComments(source string) (numbers []int) {
	number, isOutput := 0, false
	for line := range strings.Lines(source) {
		number++
		isComment := strings.HasPrefix(strings.TrimLeft(line, "\t"), "//")
		isOutput = isComment && (isOutput || outputLine.MatchString(line))
		if proseLine.MatchString(line) && !isOutput && !strings.HasPrefix(line, "//go:") && utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > widest {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

func TestComments_Width(t *testing.T) {
	for _, name := range goFiles(t) {
		for _, number := range wideComments(readFile(t, name)) {
			t.Errorf("%s:%d: wrap the comment at %d columns", name, number, widest)
		}
	}
	wide := strings.Repeat("x ", 50) + "x"
	require.Equal(t, []int{2, 5}, wideComments("package x\n// "+wide+"\n//\t"+wide+"\nfunc f() {\n\t// "+wide+"\n\t// Output:\n\t// "+wide+"\n}\n"))
}
