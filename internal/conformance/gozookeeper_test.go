package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGoZookeeper_OwnIntegrationTests runs the integration tests that come with go-zookeeper's module against this
// server and this ensemble. They are copied from the module cache to a temporary folder; only the type that starts a
// server is replaced. They take half a minute, so they run only if ZKLOCK_CONFORMANCE=1.
//
// Their two tests of reconfig skip themselves.
func TestGoZookeeper_OwnIntegrationTests(t *testing.T) {
	if os.Getenv("ZKLOCK_CONFORMANCE") != "1" {
		t.Skip("go-zookeeper's own tests run only with ZKLOCK_CONFORMANCE=1")
	}
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/go-zookeeper/zk")
	out, err := list.Output()
	require.NoError(t, err)
	source := strings.TrimSpace(string(out))
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)

	dir := t.TempDir()
	write := func(name, content string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	read := func(path ...string) string {
		content, err := os.ReadFile(filepath.Join(path...))
		require.NoError(t, err)
		return string(content)
	}
	files, err := filepath.Glob(filepath.Join(source, "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		write(filepath.Base(f), read(f))
	}
	theirs := read(source, "server_java_test.go")
	kept := strings.Index(theirs, "\ntype ServerConfigServer struct")
	require.Positive(t, kept, "go-zookeeper's harness has changed")
	write("server_java_test.go", read("testdata", "server_java_test.go.txt")+theirs[kept:])
	write("go.sum", read(root, "go.sum"))
	write("go.mod", "module github.com/go-zookeeper/zk\n\ngo 1.25.0\n\nrequire github.com/zklock/zklock v0.0.0\n\n"+
		"replace github.com/zklock/zklock => "+root+"\n")

	// Their own code does not pass vet.
	cmd := exec.Command("go", "test", "-mod=mod", "-vet=off", "-race", "-count=1", "-v", "-run", "Integration", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOPROXY=off", "GOWORK=off")
	out, err = cmd.CombinedOutput()
	passed := regexp.MustCompile(`(?m)^--- PASS: \S+`).FindAllString(string(out), -1)
	failed := regexp.MustCompile(`(?m)^--- FAIL: \S+`).FindAllString(string(out), -1)
	skipped := regexp.MustCompile(`(?m)^--- SKIP: \S+`).FindAllString(string(out), -1)
	t.Logf("%d passed, %d failed, %d skipped themselves", len(passed), len(failed), len(skipped))
	require.NoError(t, err, "%s\n%s", strings.Join(failed, "\n"), out)
	require.GreaterOrEqual(t, len(passed), 26, "%s", out)
}
