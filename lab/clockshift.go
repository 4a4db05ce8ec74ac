package main

// Clocks that jump. Servers in C get a small preloaded library. It has no effect on programs in Go,
// which ask the kernel directly. Clients in Go get a standard library with an offset.

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

//go:embed clockshift.c
var clockShiftSource []byte

// clocks are the wall clocks of some servers.
type clocks struct {
	library string
	files   []string
}

// newClocks compiles the library in dir, and creates n clocks that are correct so far. Their env is
// for a Plan's Env.
func newClocks(ctx context.Context, dir string, n int) (*clocks, error) {
	cc, err := program("cc", "gcc libc6-dev")
	if err != nil {
		return nil, err
	}
	source := filepath.Join(dir, "clockshift.c")
	c := &clocks{library: filepath.Join(dir, "clockshift.so")}
	if err := os.WriteFile(source, clockShiftSource, 0o644); err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, cc, "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", c.library, source).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("cc: %w\n%s", err, out)
	}
	for i := range n {
		c.files = append(c.files, filepath.Join(dir, "clock"+strconv.Itoa(i)))
		if err := c.set(i, 0, os.O_CREATE); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *clocks) env(i int) []string {
	return []string{"LD_PRELOAD=" + c.library, "LAB_CLOCK=" + c.files[i]}
}

// jump sets clock i ahead of the true time by d, or behind it if d is negative, until the next
// jump.
func (c *clocks) jump(i int, d time.Duration) error { return c.set(i, d, 0) }

// set overwrites the file without replacing it, because the server has it mapped.
func (c *clocks) set(i int, d time.Duration, flag int) error {
	f, err := os.OpenFile(c.files[i], os.O_WRONLY|flag, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	return binary.Write(f, binary.NativeEndian, d.Microseconds())
}

// setClock sets this process's wall clock ahead of the true time, by seconds. It is nil except in a
// clockClient.
var setClock func(seconds int64)

// clockClient builds the lab once more in dir, on a copy of package time whose wall clock can be
// set, and returns the command of its clients. It needs the lab's source, as `go run .` has it.
func clockClient(ctx context.Context, dir string) ([]string, error) {
	tool := cmp.Or(os.Getenv("GO"), "go")
	root, err := exec.CommandContext(ctx, tool, "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("%s env GOROOT: %w", tool, err)
	}
	original := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	source, err := os.ReadFile(original)
	if err != nil {
		return nil, err
	}
	const imports, now, asks = "import (\n", "\nfunc Now() Time {\n", "sec, nsec, mono := runtimeNow()\n"
	head, tail, found := strings.Cut(string(source), now)
	before, after, asked := strings.Cut(tail, asks)
	if !found || !asked || !strings.Contains(head, imports) {
		return nil, fmt.Errorf("%s is not as in Go 1.26: where does Now ask for the time?", original)
	}
	head = strings.Replace(head, imports, imports+"\t\"sync/atomic\"\n", 1)
	changed := filepath.Join(dir, "time.go")
	text := head + now + before + asks + "\tsec += labClock.Load()\n" + after +
		"\nvar labClock atomic.Int64\n\nfunc LabSetClock(seconds int64) { labClock.Store(seconds) }\n"
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return nil, err
	}
	list, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "lab")
	if err := errors.Join(os.WriteFile(changed, []byte(text), 0o644), os.WriteFile(list, overlay, 0o644)); err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, tool, "build", "-overlay", list, "-tags", "labclock", "-o", binary, ".").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("go build: %w\n%s", err, out)
	}
	return []string{binary, "client"}, nil
}
