package kubernetes

// These tests check the manifests against Kubernetes' types, in which every field must exist, and
// their command lines against the command.

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/zklock/zklock/internal/testca"
	"github.com/zklock/zklock/zktest"
)

// decode decodes a manifest strictly, as a server can.
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
	// The strict decoder rejects the same mistakes as a server.
	require.Error(t, decode([]byte(strings.Replace(string(text), "containers:", "container:", 1)), into))
	require.Error(t, decode([]byte(strings.Replace(string(text), "terminationGracePeriodSeconds: ", "terminationgraceperiodseconds: ", 1)), into))
}

// zklock builds the command.
func zklock(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "zklock")
	out, err := exec.Command("go", "build", "-C", "../../cmd/zklock", "-o", name).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return name
}

// secured is a server that accepts only TLS, from clients with a certificate, and the Secret that
// the manifests mount.
func secured(t *testing.T, pod core.PodSpec) (server *zktest.Server, secret string) {
	t.Helper()
	authority := testca.New(t, "localhost")
	own, client := authority.Own(), authority.Issue("web", time.Hour)
	server = zktest.Start(t, zktest.WithTLS(&tls.Config{
		Certificates: []tls.Certificate{own.Pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authority.Pool(),
	}))
	i := slices.IndexFunc(pod.Volumes, func(v core.Volume) bool { return v.Secret != nil })
	mode := *pod.Volumes[i].Secret.DefaultMode
	require.EqualValues(t, 0o440, mode)
	require.NotNil(t, pod.SecurityContext.FSGroup, "or only root reads it")
	require.Contains(t, pod.Containers[0].VolumeMounts, core.VolumeMount{Name: pod.Volumes[i].Name, MountPath: "/etc/zklock", ReadOnly: true})
	secret = t.TempDir()
	for name, content := range map[string][]byte{"ca.crt": own.PEM, "tls.crt": client.PEM, "tls.key": client.KeyPEM, "auth": []byte("web:secret")} {
		name = filepath.Join(secret, name)
		require.NoError(t, os.WriteFile(name, content, 0o600))
		require.NoError(t, os.Chmod(name, os.FileMode(mode)))
	}
	return server, secret
}

// run runs the command line of a container, with a shell command for the work and directories for
// its volumes.
func run(t *testing.T, c core.Container, server *zktest.Server, secret, dir, work string) {
	t.Helper()
	require.Equal(t, "zklock", c.Command[0])
	require.Equal(t, "--", c.Command[len(c.Command)-1])
	args := slices.Concat(c.Command[1:], []string{"sh", "-c", work})
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "/run/zklock", dir)
	}
	cmd := exec.Command(zklock(t), args...)
	cmd.Env = os.Environ()
	for _, e := range c.Env {
		value := strings.ReplaceAll(e.Value, "/etc/zklock", secret)
		switch {
		case e.Name == "ZKLOCK_SERVERS":
			_, port, err := net.SplitHostPort(server.Addr())
			require.NoError(t, err)
			value = "localhost:" + port
		case e.Name == "ZKLOCK_ACL":
			require.Equal(t, "user", e.Value, "with creator, the certificate would suffice")
		case e.ValueFrom != nil:
			require.Equal(t, "metadata.labels['"+batch.JobNameLabel+"']", e.ValueFrom.FieldRef.FieldPath)
			value = "nightly-29731800"
		}
		cmd.Env = append(cmd.Env, e.Name+"="+value)
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func TestCronJob(t *testing.T) {
	var job batch.CronJob
	read(t, "cronjob.yaml", &job)
	pod := job.Spec.JobTemplate.Spec.Template.Spec
	server, secret := secured(t, pod)
	run(t, pod.Containers[0], server, secret, t.TempDir(), "exit 0")
	run(t, pod.Containers[0], server, secret, t.TempDir(), "exit 1") // in another cluster: it is done
	require.True(t, slices.ContainsFunc(server.History(), func(a zktest.Applied) bool { return strings.HasPrefix(a.Path, "/locks/nightly/") }), "or nothing was locked")
}

// The sidecar's command line serves at the socket that the service is given, with the user, the
// volume and the files that it needs.
func TestGuarded(t *testing.T) {
	var orders apps.Deployment
	read(t, "guarded.yaml", &orders)
	pod := orders.Spec.Template.Spec
	guard, service := pod.InitContainers[0], pod.Containers[0]
	require.Equal(t, core.ContainerRestartPolicyAlways, *guard.RestartPolicy)
	require.NotNil(t, pod.SecurityContext.RunAsUser)
	require.Nil(t, guard.SecurityContext)
	require.Nil(t, service.SecurityContext)
	require.Equal(t, guard.VolumeMounts[0], service.VolumeMounts[0], "the directory of the socket")
	require.Equal(t, "/zklock", guard.Command[0], "where packaging/Dockerfile has it")
	socket := guard.Command[len(guard.Command)-1]
	require.Equal(t, []core.EnvVar{{Name: "ZKLOCK_GUARD", Value: socket}}, service.Env)

	pod.Containers = pod.InitContainers
	pod.Containers[0].VolumeMounts = guard.VolumeMounts[1:]
	_, secret := secured(t, pod)
	requireServes(t, guard, secret)
}

// requireServes runs the command line of a guard, and requires that it accepts connections.
func requireServes(t *testing.T, guard core.Container, secret string) {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command(zklock(t), guard.Command[1:len(guard.Command)-1]...)
	cmd.Args = append(cmd.Args, filepath.Join(dir, "guard.sock"))
	for _, e := range guard.Env {
		cmd.Env = append(cmd.Env, e.Name+"="+strings.ReplaceAll(e.Value, "/etc/zklock", secret))
	}
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	require.Eventually(t, func() bool {
		conn, err := net.Dial("unix", filepath.Join(dir, "guard.sock"))
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, time.Minute, 10*time.Millisecond)
}

// A guard of each node creates its socket in a directory of the host that its user may write.
func TestGuards(t *testing.T) {
	var guards apps.DaemonSet
	read(t, "guards.yaml", &guards)
	require.Equal(t, guards.Spec.Selector.MatchLabels, guards.Spec.Template.Labels)
	pod := guards.Spec.Template.Spec
	directory, guard := pod.InitContainers[0], pod.Containers[0]
	require.True(t, pod.HostPID)
	require.Nil(t, guard.SecurityContext, "the user of the Pod")
	require.EqualValues(t, 0, *directory.SecurityContext.RunAsUser, "to create a directory for another")
	require.Equal(t, "/zklock", guard.Command[0], "where packaging/Dockerfile has it")
	require.Equal(t, guard.VolumeMounts[0], directory.VolumeMounts[0])
	require.Equal(t, guard.VolumeMounts[0].MountPath, pod.Volumes[0].HostPath.Path, "the Pods of the services mount it there")

	own, socket := directory.Command[len(directory.Command)-1], guard.Command[len(guard.Command)-1]
	require.Equal(t, own, filepath.Dir(socket))
	require.Equal(t, guard.VolumeMounts[0].MountPath, filepath.Dir(own))
	dir := filepath.Join(t.TempDir(), "own")
	args := slices.Clone(directory.Command)
	args[len(args)-1] = dir
	i := slices.Index(args, "-o") + 1
	require.Equal(t, strconv.FormatInt(*pod.SecurityContext.RunAsUser, 10), args[i])
	args[i] = strconv.Itoa(os.Getuid()) // the test's user may be another
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())

	_, secret := secured(t, pod)
	requireServes(t, guard, secret)
}

// The probe asks only the leader, and passes if it is healthy.
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
	zookeeper, secret := secured(t, pod)
	run(t, pod.Containers[0], zookeeper, secret, dir, "cp "+metrics+" "+copied)
	well = false
	require.NoError(t, probe(), "it leads no more")
	require.NoError(t, os.Rename(copied, metrics))
	require.Error(t, probe(), "it leads, and is not well")
	well = true
	require.NoError(t, probe(), "it leads, and is well")
}
