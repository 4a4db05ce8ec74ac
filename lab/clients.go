package main

// What several systems' files share, so that each shows its own recipe only.

import (
	"context"
	"path"
	"regexp"
	"runtime/debug"
	"time"
)

// pollEvery is how long a client waits that asks again and again.
const pollEvery = 50 * time.Millisecond

// poll calls try until it says true. When ctx ends it returns errBusy if somebody held at the last answer. An error of try ends it.
func poll(ctx context.Context, try func(context.Context) (bool, error)) error {
	for busy := false; ; busy = true {
		ok, err := try(ctx)
		switch {
		case ok && err == nil:
			return nil
		case err != nil && busy && ctx.Err() != nil:
			return errBusy // the answer before this one was that somebody holds
		case err != nil:
			return err
		}
		select {
		case <-ctx.Done():
			return errBusy
		case <-time.After(pollEvery):
		}
	}
}

// library returns a module's short name and its version in this build, "redislock v0.9.4".
func library(module string) string {
	return path.Base(regexp.MustCompile(`/v\d+$`).ReplaceAllString(module, "")) + " " + libraryVersion(module)
}

// libraryVersion returns a module's version in this build. A build without modules does not know.
func libraryVersion(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == module {
				return dep.Version
			}
		}
	}
	return "of unknown version"
}
