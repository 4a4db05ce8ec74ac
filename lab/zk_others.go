package main

// The clients in other languages: Curator's InterProcessMutex in Java and kazoo's Lock in Python, with Debian's packages.

import (
	"context"
	"os/exec"

	"github.com/zklock/zklock/internal/zkserver"
)

func init() {
	register(System{
		Name: "curator", Title: "Curator `InterProcessMutex`", Client: "Curator, Java", Package: "libcurator-recipes-java",
		Promises: "The session's end frees the lock, and grants follow the queue. Its documentation has the holder stop at SUSPENDED; it has no token.",
		Server:   zooKeeper, Sizes: []int{1, 3}, Expires: true, Renews: true,
		Left: zkLeft, Break: zkBreak, External: curatorClient,
	})
	register(System{
		Name: "kazoo", Title: "kazoo `Lock`", Client: "kazoo, Python", Package: "python3-kazoo",
		Promises: "The session's end frees the lock, and grants follow the queue. Its documentation has the holder stop at SUSPENDED; it has no token.",
		Server:   zooKeeper, Sizes: []int{1, 3}, Expires: true, Renews: true,
		Left: zkLeft, Break: zkBreak, External: kazooClient,
	})
}

// curatorClient compiles the Java client.
func curatorClient(ctx context.Context, dir string) ([]string, error) {
	jars, err := zkserver.ClassPath("curator-recipes", "curator-framework", "curator-client", "guava")
	if err != nil {
		return nil, &Missing{Program: "Curator", Package: "libcurator-recipes-java"}
	}
	return javaClient(ctx, dir, "Curator", jars, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off")
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
