package main

// The programs of others/: clients in other languages.

import (
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed others
var others embed.FS

func unpack(dir, name string) (string, error) {
	source, err := others.ReadFile("others/" + name)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	return path, os.WriteFile(path, source, 0o644)
}

// java returns the command of a Java program. Many short processes run on few processors, so no
// time is spent on optimizing them.
func java(classPath []string, words ...string) []string {
	return append([]string{"java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
		"-cp", strings.Join(classPath, ":")}, words...)
}

func javaClient(ctx context.Context, dir, class string, jars []string, options ...string) ([]string, error) {
	if _, err := exec.LookPath("javac"); err != nil {
		return nil, &Missing{Program: "javac", Package: "default-jdk-headless"}
	}
	classPath := append([]string{dir}, jars...)
	args := []string{"-cp", strings.Join(classPath, ":"), "-d", dir}
	for _, name := range []string{"Client.java", class + ".java"} {
		source, err := unpack(dir, name)
		if err != nil {
			return nil, err
		}
		args = append(args, source)
	}
	if out, err := exec.CommandContext(ctx, "javac", args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("javac: %w\n%s", err, out)
	}
	return java(classPath, append(options, class)...), nil
}
