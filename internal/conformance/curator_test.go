package conformance

// Curator's recipes, by a program of ours on Debian's jars.

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/zktest"
)

// curatorJars name what else they need in their manifests.
var curatorJars = []string{"curator-recipes.jar", "curator-framework.jar", "curator-client.jar", "zookeeper.jar", "zookeeper-jute.jar", "slf4j-nop.jar"}

// TestCurator plays the same scenes on a real server and on ours; the transcripts must be the same.
func TestCurator(t *testing.T) {
	suites(t)
	classPath := compileCurator(t)
	real := startReal(t, "")
	fake := zktest.Start(t, zktest.WithTTLNodes()).Addr()

	type side struct {
		transcript string
		log        string
		err        error
	}
	play := func(addr string) side {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m",
			"-cp", classPath, "Transcript", addr)
		var out, log bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &log
		err := cmd.Run()
		return side{out.String(), log.String(), err}
	}
	onReal := make(chan side)
	go func() { onReal <- play(real) }()
	ours := play(fake)
	theirs := <-onReal
	require.NoError(t, theirs.err, "on the real server:\n%s%s", theirs.transcript, theirs.log)
	require.NoError(t, ours.err, "on zktest:\n%s%s", ours.transcript, ours.log)
	t.Logf("on zktest:\n%s", ours.log)
	t.Logf("on the real server:\n%s", theirs.log)
	require.Equal(t, theirs.transcript, ours.transcript)
	scenes := 0
	for line := range strings.Lines(ours.transcript) {
		if !strings.HasPrefix(line, " ") {
			scenes++
		}
	}
	t.Logf("curator: %d scenes, %d lines of transcript, the same on both", scenes, strings.Count(ours.transcript, "\n"))
}

// compileCurator compiles the program and returns the class path to run it with.
func compileCurator(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("javac"); err != nil {
		lacking(t, "Curator's recipes need a javac of Java 17: "+err.Error())
	}
	dir := t.TempDir()
	classPath := dir
	for _, name := range curatorJars {
		path := filepath.Join("/usr/share/java", name)
		if _, err := os.Stat(path); err != nil {
			lacking(t, "Curator's recipes need Debian's libcurator-recipes-java: "+err.Error())
		}
		classPath += ":" + path
	}
	sources, err := filepath.Glob("curator/*.java")
	require.NoError(t, err)
	out, err := exec.Command("javac", append([]string{"-cp", classPath, "-d", dir}, sources...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return classPath
}
