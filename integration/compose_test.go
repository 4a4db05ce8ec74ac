package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/zkserver"
)

// composition is docker-compose.yml under a project name and on ports of its own.
type composition struct {
	project, tool string
	env, addrs    []string
}

// compose has the file's servers started by the installed tool, healthy, and removed with the test.
func compose(t *testing.T) *composition {
	t.Helper()
	needDocker(t)
	c := &composition{project: fmt.Sprintf("zklock-test-%d", os.Getpid()), tool: "docker compose", env: append(os.Environ(), "ZOOKEEPER_IMAGE="+image)}
	if exec.Command("docker", "compose", "version").Run() != nil {
		c.tool = "docker-compose"
	}
	if _, err := c.try("version"); err != nil && os.Getenv("ZKLOCK_REQUIRE") != "1" {
		t.Skipf("neither docker compose nor docker-compose can be run: %v", err)
	}
	for i := 1; i <= 3; i++ {
		port, err := zkserver.FreePort()
		require.NoError(t, err)
		c.env = append(c.env, fmt.Sprintf("ZOOKEEPER_PORT_%d=%d", i, port))
		c.addrs = append(c.addrs, fmt.Sprintf("127.0.0.1:%d", port))
	}
	t.Cleanup(func() {
		if t.Failed() {
			logs, _ := c.try("logs --tail 60")
			t.Log(logs)
		}
		c.run(t, "down -v -t 1")
	})
	c.run(t, "up -d")
	require.Eventually(t, func() bool { return c.healthy() == 3 }, time.Minute, time.Second, "the file's health check")
	return c
}

func (c *composition) try(args string) (output string, err error) {
	words := strings.Fields(c.tool + " -f ../docker-compose.yml -p " + c.project + " " + args)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = c.env
	b, err := cmd.CombinedOutput()
	return string(b), err
}

func (c *composition) run(t *testing.T, args string) {
	t.Helper()
	output, err := c.try(args)
	require.NoError(t, err, "%s %s: %s", c.tool, args, output)
}

// healthy returns how many of the containers are healthy.
func (c *composition) healthy() int {
	ids, _ := exec.Command("docker", "ps", "-q", "--filter", "health=healthy", "--filter", "label=com.docker.compose.project="+c.project).Output()
	return len(strings.Fields(string(ids)))
}

// The file starts an ensemble whose health check passes, and which grants a lock with the library's
// defaults.
func TestCompose_IsHealthy_HoldsALock(t *testing.T) {
	c := compose(t)
	modes := map[string]int{}
	for _, addr := range c.addrs {
		mode, err := zkserver.Mode(addr)
		require.NoError(t, err, "healthy means that it serves")
		modes[mode]++
	}
	require.Equal(t, map[string]int{"leader": 1, "follower": 2}, modes)
	s := connect(t, strings.Join(c.addrs, ","))
	require.Equal(t, 30*time.Second, s.Stats().SessionTimeout, "the servers grant the library's default")
	m, err := zklock.NewMutex(s, "/locks/job")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, m.Do(ctx, func(context.Context, *zklock.Hold) error { return nil }))
}
