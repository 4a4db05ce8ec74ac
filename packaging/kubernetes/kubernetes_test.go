package kubernetes

// These tests hold the manifests to Kubernetes' types, in which each field must be known, and their command lines to the command.

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/zklock/zklock/zktest"
)

// decode decodes a manifest as a server does that is asked to be strict.
func decode(text []byte, into any) error {
	js, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	strict, err := json.UnmarshalStrict(js, into)
	if err == nil && len(strict) > 0 {
		err = strict[0]
	}
	return err
}

// read decodes a file.
func read(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	require.NoError(t, decode(text, into), name)
	// What makes a server refuse it makes this one refuse it, too.
	require.Error(t, decode([]byte(strings.Replace(string(text), "containers:", "container:", 1)), into))
	require.Error(t, decode([]byte(strings.Replace(string(text), "terminationGracePeriodSeconds: ", "terminationgraceperiodseconds: ", 1)), into))
}

// zklock builds the command.
func zklock(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "zklock")
	build := exec.Command("go", "build", "-o", name, "./cmd/zklock")
	build.Dir = "../.."
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return name
}

// run runs the command line of a container, with a shell command for the work and a directory for its volume.
func run(t *testing.T, c core.Container, servers, dir, work string) {
	t.Helper()
	require.Equal(t, "zklock", c.Command[0])
	require.Equal(t, "--", c.Command[len(c.Command)-1])
	args := slices.Concat(c.Command[1:], []string{"sh", "-c", work})
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "/run/zklock", dir)
	}
	cmd := exec.Command(zklock(t), args...)
	cmd.Env = append(os.Environ(), "ZKLOCK_SERVERS="+servers)
	for _, e := range c.Env {
		require.Regexp(t, "^ZKLOCK_(SERVERS|ONCE)$", e.Name)
		if e.ValueFrom != nil {
			require.Equal(t, "metadata.labels['"+batch.JobNameLabel+"']", e.ValueFrom.FieldRef.FieldPath)
			cmd.Env = append(cmd.Env, e.Name+"=nightly-29731800")
		}
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func TestCronJob(t *testing.T) {
	var job batch.CronJob
	read(t, "cronjob.yaml", &job)
	c, servers := job.Spec.JobTemplate.Spec.Template.Spec.Containers[0], zktest.Start(t).Addr()
	run(t, c, servers, t.TempDir(), "exit 0")
	run(t, c, servers, t.TempDir(), "exit 1") // in another cluster: it is done
}

// The probe asks the leader alone, and passes if that is well.
func TestDeployment(t *testing.T) {
	var web apps.Deployment
	read(t, "deployment.yaml", &web)
	pod := web.Spec.Template.Spec
	require.Equal(t, web.Spec.Selector.MatchLabels, web.Spec.Template.Labels)
	require.Equal(t, pod.Volumes[0].Name, pod.Containers[0].VolumeMounts[0].Name)

	well := true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !well {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer server.Close()
	dir := t.TempDir()
	probe := func() error {
		args := slices.Clone(pod.Containers[0].LivenessProbe.Exec.Command)
		for i := range args {
			args[i] = strings.NewReplacer("/run/zklock", dir, "http://127.0.0.1:8080", server.URL).Replace(args[i])
		}
		return exec.Command(args[0], args[1:]...).Run()
	}
	metrics := filepath.Join(dir, "web.prom")
	copied := filepath.Join(t.TempDir(), "led.prom")
	require.NoError(t, probe(), "it has not led yet")
	run(t, pod.Containers[0], zktest.Start(t).Addr(), dir, "cp "+metrics+" "+copied)
	well = false
	require.NoError(t, probe(), "it leads no more")
	require.NoError(t, os.Rename(copied, metrics))
	require.Error(t, probe(), "it leads, and is not well")
	well = true
	require.NoError(t, probe(), "it leads, and is well")
}
