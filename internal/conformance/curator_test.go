package conformance

// These tests run Curator's recipes, with a program of ours on Debian's jars.

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/zkserver"
	"github.com/zklock/zklock/zktest"
)

// TestCurator plays the same scenes on a real server and on ours; the transcripts must be the same.
func TestCurator(t *testing.T) {
	suites(t)
	sameTranscripts(t, startReal(t), zktest.Start(t, zktest.WithConfig("extendedTypesEnabled=true")).Addr())
}

// sameTranscripts plays the scenes on both servers, with these properties of Java.
func sameTranscripts(t *testing.T, real, fake string, java ...string) {
	t.Helper()
	classPath := compileCurator(t)
	type side struct {
		transcript string
		log        string
		err        error
	}
	play := func(addr string) side {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "java", slices.Concat(java, curatorArgs(classPath, "Transcript", addr))...)
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

var curatorLibraries = []string{"curator-recipes", "curator-framework", "curator-client"}

// compileCurator compiles the program and returns the class path to run it with.
func compileCurator(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("javac"); err != nil {
		lacking(t, "Curator's recipes need a javac of Java 17: "+err.Error())
	}
	dir := t.TempDir()
	jars, err := zkserver.ClassPath(curatorLibraries...)
	if err != nil {
		lacking(t, "Curator's recipes: "+err.Error())
	}
	classPath := strings.Join(append([]string{dir}, jars...), ":")
	sources, err := filepath.Glob("curator/*.java")
	require.NoError(t, err)
	out, err := exec.Command("javac", append([]string{"-cp", classPath, "-d", dir}, sources...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return classPath
}

// curatorVersion returns the version of the jar of Curator's recipes. The jar, or another name of
// it, ends in the version.
func curatorVersion(t *testing.T) string {
	t.Helper()
	jar := curatorRecipes(t)
	named, err := filepath.Glob(filepath.Join(filepath.Dir(jar), "curator-recipes-[0-9]*.jar"))
	require.NoError(t, err)
	require.Len(t, named, 1, "jars beside %s that tell its version", jar)
	version, _ := strings.CutSuffix(filepath.Base(named[0]), ".jar")
	return strings.TrimPrefix(version, "curator-recipes-")
}

// curatorRecipes is the jar of Curator's recipes.
func curatorRecipes(t *testing.T) string {
	t.Helper()
	jars, err := zkserver.ClassPath(curatorLibraries...)
	require.NoError(t, err)
	i := slices.IndexFunc(jars, func(jar string) bool { return strings.HasPrefix(filepath.Base(jar), "curator-recipes") })
	require.GreaterOrEqual(t, i, 0, "%v", jars)
	return jars[i]
}

// curatorArgs returns java's arguments for a program that compileCurator compiled.
func curatorArgs(classPath string, program ...string) []string {
	return append([]string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
		"-cp", classPath}, program...)
}
