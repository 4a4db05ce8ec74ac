package zktest_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/zktest"
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

// The session-loss test is as short as the page says.
func TestDocs_ThirtyLines(t *testing.T) {
	_, body, _ := strings.Cut(readText(t, "example_service_test.go"), "synctest.Test(t, func(t *testing.T) {\n")
	body, _, _ = strings.Cut(body, "\n\t})\n}")
	require.LessOrEqual(t, strings.Count(body, "\n")+1, 30)
}

// Whatever a fault can be, and whatever a server or an ensemble can be asked, is on the page.
func TestDocs_NameEveryMethod(t *testing.T) {
	page := readText(t, guide)
	for _, v := range []any{zktest.Fault{}, &zktest.Server{}, &zktest.Ensemble{}, &zktest.Member{}, &zktest.Injection{}, &zktest.Proxy{}, &zktest.Network{}} {
		for i := range reflect.TypeOf(v).NumMethod() {
			name := reflect.TypeOf(v).Method(i).Name
			switch name {
			case "String", "Inject", "Err", "Close", "Dial", "Listen", "Member", "Members", "Addrs", "ID", "Tick", "Zxid":
				continue // said by what they are
			}
			if !regexp.MustCompile(`\b` + name + `\b`).MatchString(page) {
				t.Errorf("docs/testing.md does not name %T.%s: add a few words on what it is for", v, name)
			}
		}
	}
}

// Links to files lead somewhere.
func TestDocs_Links(t *testing.T) {
	for _, m := range regexp.MustCompile(`\]\(([^)#:]+)\)`).FindAllStringSubmatch(readText(t, guide), -1) {
		_, err := os.Stat(filepath.Join(filepath.Dir(guide), m[1]))
		require.NoError(t, err, "docs/testing.md links to it")
	}
}
