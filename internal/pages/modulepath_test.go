package pages

// This test moves a small repository to other module paths with scripts/module-path, and looks for
// a path that was changed twice or not at all.

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestModulePath_MovesEachPathOnce(t *testing.T) {
	for _, name := range []string{"bash", "git", "sed"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("not covered: scripts/module-path needs bash, git and sed: %v", err)
		}
	}
	for name, x := range map[string]struct{ path, repository string }{
		"another":                         {"example.com/locks/zklock", ""},
		"one that begins with the old":    {module + "-fork", ""},
		"one below the old":               {module + "/locks", ""},
		"another, in the same repository": {"example.com/zklock", "https://" + module},
		"below, in the same repository":   {module + "/locks", "https://" + module},
		"another repository":              {"example.com/zklock", "https://git.example.com/a/b"},
	} {
		t.Run(name, func(t *testing.T) {
			repository := x.repository
			if repository == "" {
				repository = "https://" + x.path
			}
			at := func(path, repository string) map[string]string {
				return map[string]string{
					"go.mod":         "module " + path + "\n\ngo 1.26.0\n",
					"contrib/go.mod": "module " + path + "/contrib\n\ngo 1.26.0\n\nreplace " + path + " => ../\n",
					"a.go":           "package zklock\n\nimport _ \"" + path + "/internal/a\"\n",
					"README.md":      "Read " + repository + "/issues and pkg.go.dev/" + path + "#A, " + path + ".\n",
				}
			}
			dir := t.TempDir()
			for name, text := range at(module, "https://"+module) {
				require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
			}
			require.NoError(t, os.Mkdir(filepath.Join(dir, "scripts"), 0o755))
			for _, script := range []string{"scripts/module-path", "scripts/lib.sh"} {
				require.NoError(t, os.WriteFile(filepath.Join(dir, script), []byte(readFile(t, script)), 0o755))
			}
			run := func(name string, args ...string) {
				t.Helper()
				cmd := exec.Command(name, args...)
				cmd.Dir = dir
				// A hook of git has its repository in the environment.
				cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GIT_") })
				out, err := cmd.CombinedOutput()
				require.NoError(t, err, "%s", out)
			}
			run("git", "init", "-q")
			run("git", "add", ".")
			run("scripts/module-path", strings.Fields(x.path+" "+x.repository)...)
			for name, want := range at(x.path, repository) {
				got, err := os.ReadFile(filepath.Join(dir, name))
				require.NoError(t, err)
				require.Equal(t, want, string(got), name)
			}
		})
	}
}
