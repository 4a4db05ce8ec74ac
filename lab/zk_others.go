package main

// The clients in other languages: Curator's InterProcessMutex in Java and kazoo's Lock in Python,
// with Debian's packages.

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/zklock/zklock/internal/zkserver"
)

func init() {
	register(System{
		Name: "curator", Title: "Curator `InterProcessMutex`", Client: "Curator, Java", Package: "libcurator-recipes-java",
		Promises: "The session's end frees the lock, and grants follow the queue. Its documentation has the holder stop at SUSPENDED; it has no token.",
		Server:   zooKeeper, Sizes: []int{1, 3}, Expires: true, Renews: true,
		Left: zkLeft, Break: zkBreak, External: curatorClient,
	})
	curatorShared("curator", "Curator", "Curator, Java", "libcurator-recipes-java", curatorClient)
	curatorShared("curator-new", "the newest Curator", "Curator "+newestCurator().version+", Java", "", newestCurator().client)
	register(System{
		Name: "kazoo-readers", Title: "kazoo `ReadLock`, `WriteLock`", Client: "kazoo, Python", Package: "python3-kazoo", Kind: readers,
		Promises: "Readers together, or a writer alone, in the order in which they asked. No downgrade.",
		Server:   zooKeeper, Sizes: []int{1}, Expires: true, Renews: true, External: kazooClient,
	})
	register(System{
		Name: "kazoo-permits", Title: "kazoo `Semaphore`", Client: "kazoo, Python", Package: "python3-kazoo", Kind: permits,
		Promises: "No more leases than `max_leases`. The session's end frees them.",
		Server:   zooKeeper, Sizes: []int{1}, Expires: true, Renews: true, External: kazooClient,
	})
	register(System{
		Name: "kazoo", Title: "kazoo `Lock`", Client: "kazoo, Python", Package: "python3-kazoo",
		Promises: "The session's end frees the lock, and grants follow the queue. Its documentation has the holder stop at SUSPENDED; it has no token.",
		Server:   zooKeeper, Sizes: []int{1, 3}, Expires: true, Renews: true,
		Left: zkLeft, Break: zkBreak, External: kazooClient,
	})
}

// curatorShared adds Curator's locks that several clients hold.
func curatorShared(name, title, client, debian string, external func(context.Context, string) ([]string, error)) {
	register(System{
		Name: name + "-readers", Title: title + " `InterProcessReadWriteLock`", Client: client, Package: debian, Kind: readers,
		Promises: "Readers together, or a writer alone, in the order in which they asked. A writer can become a reader. Stop at SUSPENDED, as with the mutex.",
		Server:   zooKeeper, Sizes: []int{1}, Expires: true, Renews: true, Downgrades: true, External: external,
	})
	register(System{
		Name: name + "-permits", Title: title + " `InterProcessSemaphoreV2`", Client: client, Package: debian, Kind: permits,
		Promises: "No more leases than there are permits. The session's end frees them.",
		Server:   zooKeeper, Sizes: []int{1}, Expires: true, Renews: true, External: external,
	})
}

// curator is a version of Curator that scripts/zookeeper-home has downloaded.
type curator struct{ home, version string }

// newestCurator returns the newest version, or an empty one if there is no Curator.
func newestCurator() (c curator) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return c
	}
	jars, _ := filepath.Glob(filepath.Join(cache, "zklock", "zookeeper", "*", "lib", "curator-recipes-*.jar"))
	for _, jar := range jars {
		version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(jar), "curator-recipes-"), ".jar")
		if newer(version, c.version) {
			c = curator{filepath.Dir(filepath.Dir(jar)), version}
		}
	}
	return c
}

func newer(a, b string) bool {
	var x, y [3]int
	_, _ = fmt.Sscanf(a, "%d.%d.%d", &x[0], &x[1], &x[2])
	_, _ = fmt.Sscanf(b, "%d.%d.%d", &y[0], &y[1], &y[2]) // zero if it has no version
	return slices.Compare(x[:], y[:]) > 0
}

func (c curator) client(ctx context.Context, dir string) ([]string, error) {
	if c.home == "" {
		return nil, &Missing{Program: "a newer Curator", Package: "libcurator-recipes-java of a newer suite (scripts/zookeeper-home)"}
	}
	jars, err := zkserver.HomeJars(c.home)
	if err != nil {
		return nil, err
	}
	return javaClient(ctx, dir, "Curator", jars, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off")
}

func curatorClient(ctx context.Context, dir string) ([]string, error) {
	jars, err := zkserver.ClassPath("curator-recipes", "curator-framework", "curator-client", "guava")
	if err != nil {
		return nil, &Missing{Program: "Curator", Package: "libcurator-recipes-java"}
	}
	return javaClient(ctx, dir, "Curator", jars, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off")
}

func kazooClient(ctx context.Context, dir string) ([]string, error) {
	const python = "/usr/bin/python3"
	if err := exec.CommandContext(ctx, python, "-c", "import kazoo.recipe.lock").Run(); err != nil {
		return nil, &Missing{Program: "kazoo", Package: "python3-kazoo"}
	}
	source, err := unpack(dir, "client.py")
	return []string{python, source}, err
}
