package integration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/zkserver"
)

const composeFile = "../docker-compose.yml"

// composeTools are the two tools that the file supports. If both are installed, both are tried.
func composeTools() [][]string {
	var there [][]string
	for _, tool := range [][]string{{"docker", "compose"}, {"docker-compose"}} {
		if exec.Command(tool[0], append(tool[1:], "version")...).Run() == nil {
			there = append(there, tool)
		}
	}
	return there
}

func TestCompose_ComesUpHealthy_HoldsALock_GoesAway(t *testing.T) {
	docker := needDocker(t)
	tools := composeTools()
	if len(tools) == 0 {
		without(t, fmt.Errorf("neither docker compose nor docker-compose is installed"))
	}
	for _, tool := range tools {
		t.Run(strings.Join(tool, " "), func(t *testing.T) {
			c := newComposition(t, docker, tool)

			c.run(t, "up", "-d")
			c.awaitHealthy(t)
			modes := map[string]int{}
			for _, addr := range c.addrs {
				mode, err := zkserver.Mode(addr)
				require.NoError(t, err, "healthy means that it serves")
				modes[mode]++
			}
			require.Equal(t, map[string]int{"leader": 1, "follower": 2}, modes)
			useOnce(t, strings.Join(c.addrs, ","))

			c.run(t, "down", "-v")
			require.Empty(t, c.containers(t))
		})
	}
}

// useOnce takes a lock with the defaults and releases it.
func useOnce(t *testing.T, servers string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := zklock.Connect(ctx, servers)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.Equal(t, 30*time.Second, s.Timeout(), "the servers grant the library's default")
	hold := acquire(t, s)
	require.NoError(t, hold.Err())
	release(t, hold)
}

// composition is docker-compose.yml under a project name and on ports of its own.
type composition struct {
	tool    []string
	project string
	env     []string
	addrs   []string
	docker  client.APIClient
}

func newComposition(t *testing.T, docker client.APIClient, tool []string) *composition {
	t.Helper()
	c := &composition{
		tool:    tool,
		project: fmt.Sprintf("zklock-test-%d", os.Getpid()),
		env:     append(os.Environ(), "ZOOKEEPER_IMAGE="+image()),
		docker:  docker,
	}
	for i := 1; i <= 3; i++ {
		port, err := zkserver.FreePort()
		require.NoError(t, err)
		c.env = append(c.env, fmt.Sprintf("ZOOKEEPER_PORT_%d=%d", i, port))
		c.addrs = append(c.addrs, fmt.Sprintf("127.0.0.1:%d", port))
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if t.Failed() {
			logs, _ := c.command(ctx, "logs", "--tail", "60").CombinedOutput()
			t.Logf("%s logs:\n%s", strings.Join(tool, " "), logs)
		}
		out, err := c.command(ctx, "down", "-v", "-t", "1").CombinedOutput()
		require.NoError(t, err, "%s", out)
	})
	return c
}

func (c *composition) command(ctx context.Context, args ...string) *exec.Cmd {
	all := append(append([]string(nil), c.tool[1:]...), "-f", composeFile, "-p", c.project)
	cmd := exec.CommandContext(ctx, c.tool[0], append(all, args...)...)
	cmd.Env = c.env
	return cmd
}

func (c *composition) run(t *testing.T, args ...string) {
	t.Helper()
	var out bytes.Buffer
	cmd := c.command(t.Context(), args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Run(), "%s %v:\n%s", strings.Join(c.tool, " "), args, &out)
}

// containers returns the project's containers.
func (c *composition) containers(t *testing.T) []container.Summary {
	t.Helper()
	list, err := c.docker.ContainerList(t.Context(), client.ContainerListOptions{
		All:     true,
		Filters: make(client.Filters).Add("label", "com.docker.compose.project="+c.project),
	})
	require.NoError(t, err)
	return list.Items
}

// awaitHealthy returns when the file's own health check passes for all three.
func (c *composition) awaitHealthy(t *testing.T) {
	t.Helper()
	within(t, startLimit, "three healthy containers", func() bool {
		healthy := 0
		for _, item := range c.containers(t) {
			if strings.Contains(item.Status, "(healthy)") {
				healthy++
			}
		}
		return healthy == 3
	})
}
