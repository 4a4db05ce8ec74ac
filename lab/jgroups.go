package main

// JGroups' CENTRAL_LOCK, in Java, with Debian's package. The clients are the members of a group,
// and the oldest of them keeps the locks. The lab's server is only the router through which they
// reach each other.

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

func init() {
	register(System{
		Name: "jgroups", Title: "JGroups CENTRAL_LOCK", Client: "JGroups, Java", Package: "libjgroups-java",
		Promises: "One at a time, in the order of arrival. The oldest member keeps the locks, another has a copy; a member that is taken for gone loses its locks. The documentation of the class does not say what becomes of locks when a partition has left two oldest members. ([CENTRAL_LOCK](https://javagroups.sourceforge.net/javadoc4/org/jgroups/protocols/CENTRAL_LOCK.html), of version 4)",
		Server:   gossipRouter, Sizes: []int{1}, Expires: true, Renews: true, External: jgroupsClient,
	})
}

// jgroupsPackage is Debian's package with this file.
const (
	jgroupsPackage = "libjgroups-java"
	jgroupsJar     = "/usr/share/java/jgroups.jar"
	onlyIPv4       = "-Djava.net.preferIPv4Stack=true"
)

func haveJGroups() error {
	if _, err := os.Stat(jgroupsJar); err != nil {
		return &Missing{Program: "JGroups", Package: jgroupsPackage + " default-jdk-headless"}
	}
	return nil
}

func jgroupsClient(ctx context.Context, dir string) ([]string, error) {
	if err := haveJGroups(); err != nil {
		return nil, err
	}
	silent := filepath.Join(dir, "logging.properties")
	if err := os.WriteFile(silent, []byte(".level=OFF\n"), 0o644); err != nil {
		return nil, err
	}
	return javaClient(ctx, dir, "JGroups", []string{jgroupsJar}, onlyIPv4, "-Djava.util.logging.config.file="+silent)
}

var gossipRouter = &ServerKind{Name: "jgroups", Start: func(_ context.Context, p Plan) (Cluster, error) {
	if err := haveJGroups(); err != nil {
		return nil, err
	}
	addr, err := serverPorts.addr()
	if err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(addr)
	command := java([]string{jgroupsJar}, onlyIPv4, "org.jgroups.stack.GossipRouter", "-port", port, "-bindaddress", host)
	r := &jgroupsRouter{processes{addrs: []string{addr}}}
	bin, err := program(command[0], "default-jre-headless")
	if err != nil {
		return nil, err
	}
	r.procs = []*process{{Path: bin, Args: command[1:], Dir: p.Dir, Log: filepath.Join(p.Dir, "log")}}
	r.ready = func(ctx context.Context, _ int) error {
		c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		return c.Close()
	}
	return r, r.startAll()
}}

type jgroupsRouter struct{ processes }

func (*jgroupsRouter) Version() string {
	return "JGroups" + strings.TrimPrefix(debianVersion(jgroupsPackage), ",")
}
