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

// All Go on the page is in the examples, which compile and run.
func TestDocs_GoIsInTheExamples(t *testing.T) {
	examples := readText(t, "example_guide_test.go") + readText(t, "example_service_test.go") + readText(t, "example_job_test.go") +
		readText(t, "../integration/container_test.go")
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(readText(t, guide), -1)
	require.NotEmpty(t, blocks)
	for _, b := range blocks {
		if !strings.Contains(examples, b[1]) {
			t.Errorf("this block of docs/testing.md is not in an example file; change them together:\n%s", b[1])
		}
	}
}
