//go:build !linux

package command

func (*guarding) run() error { return exitf(exitUsage, "guard needs Linux") }
