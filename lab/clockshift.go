package main

// Clocks that jump: a small library that is preloaded into servers written in C. Programs in Go ask the kernel themselves; for
// them it does nothing.

import (
	"context"
	_ "embed"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

//go:embed clockshift.c
var clockShiftSource []byte

// clocks are the wall clocks of some servers.
type clocks struct {
	library string
	files   []string
}

// newClocks compiles the library in dir, and makes n clocks that are right so far. Their env is a Plan's Env.
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

// jump sets clock i ahead of the true time by d, or behind it if d is negative. It stays so.
func (c *clocks) jump(i int, d time.Duration) error { return c.set(i, d, 0) }

// set writes in place: the server has the file mapped.
func (c *clocks) set(i int, d time.Duration, flag int) error {
	f, err := os.OpenFile(c.files[i], os.O_WRONLY|flag, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	return binary.Write(f, binary.NativeEndian, d.Microseconds())
}
