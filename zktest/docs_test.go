package zktest_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const guide = "../docs/testing.md"

func readText(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	return strings.ReplaceAll(string(b), "\r\n", "\n")
}

// The page's Go is that of the examples, which compile and run, and it shows all of them.
func TestDocs_GoIsInTheExamples(t *testing.T) {
	examples := readText(t, "example_guide_test.go") + readText(t, "example_service_test.go") + readText(t, "example_job_test.go")
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(readText(t, guide), -1)
	require.NotEmpty(t, blocks)
	var shown strings.Builder
	for _, b := range blocks {
		if !strings.Contains(examples, b[1]) {
			t.Errorf("this block of docs/testing.md is not in an example file; change them together:\n%s", b[1])
		}
		shown.WriteString(b[1])
	}
	for _, name := range regexp.MustCompile(`(?m)^func (\w+)`).FindAllStringSubmatch(examples, -1) {
		if !strings.Contains(shown.String(), "func "+name[1]+"(") {
			t.Errorf("docs/testing.md does not show %s", name[1])
		}
	}
}
