package main

// The clients in other languages: Curator's InterProcessMutex in Java and kazoo's Lock in Python, with Debian's packages.

import (
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/zklock/zklock/internal/zkserver"
)

//go:embed others
var others embed.FS

func init() {
	register(System{
		Name: "curator", Title: "Curator `InterProcessMutex`", Client: "Curator, Java", Package: "libcurator-recipes-java",
		Promises: "The session's end frees the lock, and grants follow the queue. Its documentation has the holder stop at SUSPENDED; it has no token.",
		Server:   zooKeeper, Sizes: []int{1, 3}, Expires: true, Renews: true, Waits: Watches,
		Left: zkLeft, Break: zkBreak, External: curatorClient,
	})
	register(System{
		Name: "kazoo", Title: "kazoo `Lock`", Client: "kazoo, Python", Package: "python3-kazoo",
		Promises: "The session's end frees the lock, and grants follow the queue. Its documentation has the holder stop at SUSPENDED; it has no token.",
		Server:   zooKeeper, Sizes: []int{1, 3}, Expires: true, Renews: true, Waits: Watches,
		Left: zkLeft, Break: zkBreak, External: kazooClient,
	})
}

// unpack writes a source of others/ to dir.
func unpack(dir, name string) (string, error) {
	source, err := others.ReadFile("others/" + name)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	return path, os.WriteFile(path, source, 0o644)
}

// curatorClient compiles the Java client.
func curatorClient(ctx context.Context, dir string) ([]string, error) {
	missing := &Missing{Program: "Curator", Package: "libcurator-recipes-java default-jdk-headless"}
	jars, err := zkserver.ClassPath("curator-recipes", "curator-framework", "curator-client", "guava")
	if err != nil {
		return nil, missing
	}
	if _, err := exec.LookPath("javac"); err != nil {
		return nil, missing
	}
	source, err := unpack(dir, "Client.java")
	if err != nil {
		return nil, err
	}
	classPath := strings.Join(append([]string{dir}, jars...), ":")
	if out, err := exec.CommandContext(ctx, "javac", "-cp", classPath, "-d", dir, source).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("javac: %w\n%s", err, out)
	}
	// Many short processes on few processors: no time is spent on making them fast.
	return []string{"java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", classPath, "Client"}, nil
}

// kazooClient finds the Python client.
func kazooClient(ctx context.Context, dir string) ([]string, error) {
	const python = "/usr/bin/python3"
	if err := exec.CommandContext(ctx, python, "-c", "import kazoo.recipe.lock").Run(); err != nil {
		return nil, &Missing{Program: "kazoo", Package: "python3-kazoo"}
	}
	source, err := unpack(dir, "client.py")
	return []string{python, source}, err
}
