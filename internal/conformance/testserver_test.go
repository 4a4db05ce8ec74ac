package conformance

// The examples of zklock serve for tests in other languages.

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/zkserver"
)

const testServerExamples = "../../examples/testserver"

// withCommand returns an environment in which zklock is the command.
func withCommand(t *testing.T) []string {
	t.Helper()
	return append(os.Environ(), "PATH="+filepath.Dir(buildCommand(t))+string(os.PathListSeparator)+os.Getenv("PATH"), "PYTHONDONTWRITEBYTECODE=1")
}

// buildCommand builds the command, and returns its path.
func buildCommand(t *testing.T) string {
	t.Helper()
	command := filepath.Join(t.TempDir(), "zklock")
	out, err := exec.Command("go", "build", "-C", "../../cmd/zklock", "-o", command).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return command
}

func TestExample_TestServer_Java(t *testing.T) {
	suites(t)
	if _, err := exec.LookPath("javac"); err != nil {
		lacking(t, "the example needs a javac of Java 17: "+err.Error())
	}
	jars, err := zkserver.ClassPath(curatorLibraries...)
	if err != nil {
		lacking(t, "the example needs Curator: "+err.Error())
	}
	dir := t.TempDir()
	sources, err := filepath.Glob(testServerExamples + "/*.java")
	require.NoError(t, err)
	require.Len(t, sources, 2)
	classPath := strings.Join(append([]string{dir}, jars...), ":")
	out, err := exec.Command("javac", append([]string{"-cp", classPath, "-d", dir}, sources...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	cmd := exec.Command("java", curatorArgs(classPath, "Example")...)
	cmd.Env = withCommand(t)
	out, err = cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "ok\n")
}

func TestExample_TestServer_Python(t *testing.T) {
	suites(t)
	if out, err := exec.Command(debianPython, "-c", "import kazoo, pytest").CombinedOutput(); err != nil {
		lacking(t, "the example needs Debian's python3-kazoo and python3-pytest: "+lastLines(out, 1))
	}
	cmd := exec.Command(debianPython, "-m", "pytest", "-q", "-p", "no:cacheprovider", testServerExamples)
	cmd.Env = withCommand(t)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "3 passed")
}
