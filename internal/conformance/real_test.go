package conformance

// A real ZooKeeper 3.8.0 as a child process.

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/rawzk"
)

// jar is where Debian's libzookeeper-java puts it; ZKLOCK_ZOOKEEPER_JAR names another place.
const jar = "/usr/share/java/zookeeper.jar"

// findReal returns the java and the jar to run, or why there are none.
func findReal() (java, jarPath, missing string) {
	java, err := exec.LookPath("java")
	if err != nil {
		return "", "", "no java in PATH"
	}
	jarPath = jar
	if named := os.Getenv("ZKLOCK_ZOOKEEPER_JAR"); named != "" {
		jarPath = named
	}
	if _, err := os.Stat(jarPath); err != nil {
		return "", "", "no ZooKeeper: " + err.Error()
	}
	return java, jarPath, ""
}

// startReal runs a real server for the length of the test and returns its address. Without one to run it skips
// the test, or fails it if ZKLOCK_REQUIRE_REAL=1. properties are Java's, as -Dname=value.
func startReal(t testing.TB, superDigest string, properties ...string) string {
	t.Helper()
	java, jarPath, missing := findReal()
	if missing != "" {
		if os.Getenv("ZKLOCK_REQUIRE_REAL") == "1" {
			t.Fatalf("ZKLOCK_REQUIRE_REAL=1, and there is no real server: %s", missing)
		}
		t.Skipf("not compared with a real ZooKeeper: %s", missing)
	}
	dir := t.TempDir()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := ln.Addr().String()
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	require.NoError(t, ln.Close())
	cfg := filepath.Join(dir, "zoo.cfg")
	require.NoError(t, os.WriteFile(cfg, []byte(strings.Join([]string{
		"dataDir=" + filepath.Join(dir, "data"), "clientPort=" + port, "clientPortAddress=127.0.0.1",
		"tickTime=2000", "admin.enableServer=false", "4lw.commands.whitelist=*", "maxClientCnxns=0", "",
	}, "\n")), 0o600))
	log, err := os.Create(filepath.Join(dir, "log"))
	require.NoError(t, err)
	defer log.Close()
	args := []string{
		"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-Dzookeeper.forceSync=no",
		"-Dzookeeper.extendedTypesEnabled=true", "-Dznode.container.checkIntervalMs=86400000",
		"-Dzookeeper.DigestAuthenticationProvider.superDigest=" + superDigest, "-Dzookeeper.snapCount=10000000",
	}
	args = append(args, properties...)
	args = append(args, "-cp", dir+":"+jarPath, "org.apache.zookeeper.server.quorum.QuorumPeerMain", cfg)
	cmd := exec.Command(java, args...)
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-exited
	})
	for deadline := time.Now().Add(30 * time.Second); ; {
		if answer, err := rawzk.WordWithin(addr, "srvr", 200*time.Millisecond); err == nil && strings.Contains(answer, "Mode: ") {
			return addr
		}
		select {
		case err := <-exited:
			exited <- err
			out, _ := os.ReadFile(log.Name())
			require.FailNow(t, "the real server ended", "%v\n%s", err, out)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			out, _ := os.ReadFile(log.Name())
			require.FailNow(t, "the real server does not serve", "%s\n%s", fmt.Sprint(addr), out)
		}
	}
}
