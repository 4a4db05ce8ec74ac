package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/zklock/zklock/internal/zkserver"
)

// child is a rival in another language: a process that reads a workload in one line and replies
// with its result in one.
type child struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
	servers servers // that it uses
}

func startChild(name string, args ...string) (*child, error) {
	c := &child{cmd: exec.Command(name, args...)}
	c.cmd.Stderr = os.Stderr
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewScanner(out)
	return c, c.cmd.Start()
}

func (c *child) measure(w workload, path string, d time.Duration) (r result, err error) {
	election := 0
	if w.Election {
		election = 1
	}
	before := c.servers.read()
	if _, err := fmt.Fprintf(c.in, "%s %d %d %d %d %d %d %d %d %d %d %d\n", path, w.Sessions, w.Threads, w.Locks, w.Hold.Microseconds(), w.Drain, w.Burst, d.Milliseconds(),
		w.Reads, w.Permits, election, w.Several); err != nil {
		return r, err
	}
	if !c.out.Scan() {
		return r, errors.New("the process ended")
	}
	var took, p50, cpu, held int64
	if _, err := fmt.Sscanf(c.out.Text(), "%d %d %d %d %d %d", &r.Ops, &took, &p50, &r.Overlaps, &cpu, &held); err != nil {
		return r, fmt.Errorf("it says %q: %w", c.out.Text(), err)
	}
	const us = time.Microsecond
	r.Took, r.P50, r.CPU = time.Duration(took)*us, time.Duration(p50)*us, time.Duration(cpu)*us/time.Duration(max(r.Ops, 1))
	r.Between = (r.Took - time.Duration(held)*us) / time.Duration(max(r.Ops, 1))
	after := c.servers.read()
	if w.Drain == 0 && r.Ops > 0 { // otherwise its queueing would be counted
		r.charge(before, after)
	}
	return r, errors.Join(before.err, after.err)
}

func (c *child) close() {
	_ = c.in.Close()
	_ = c.cmd.Wait()
}

// startCurator compiles and starts Curator's lock, with Debian's jars.
func startCurator(dir, addr string) (*child, error) {
	jars, err := zkserver.ClassPath("curator-recipes", "curator-framework", "curator-client", "guava")
	if err != nil {
		return nil, err
	}
	classPath := strings.Join(append([]string{dir}, jars...), ":")
	if out, err := exec.Command("javac", "-cp", classPath, "-d", dir, filepath.Join("others", "Bench.java")).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("javac: %w\n%s", err, out)
	}
	return startChild("java", "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", classPath, "Bench", addr)
}

// startKazoo starts kazoo's lock, with Debian's package.
func startKazoo(addr string) (*child, error) {
	const python = "/usr/bin/python3"
	if out, err := exec.Command(python, "-c", "import kazoo.recipe.lock").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	return startChild(python, filepath.Join("others", "bench.py"), addr)
}
