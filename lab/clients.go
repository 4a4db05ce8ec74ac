package main

// Code that several systems share, so that each of their files shows only its own recipe.

import (
	"context"
	"path"
	"regexp"
	"runtime/debug"
	"time"
)

// pollEvery is the pause of a client that polls.
const pollEvery = 50 * time.Millisecond

// poll calls try until it returns true. If ctx ends, poll returns errBusy if the last response was
// that another client holds. An error of try ends poll.
func poll(ctx context.Context, try func(context.Context) (bool, error)) error {
	for busy := false; ; busy = true {
		ok, err := try(ctx)
		switch {
		case ok && err == nil:
			return nil
		case err != nil && busy && ctx.Err() != nil:
			return errBusy // the response before this one was that another client holds
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

// libraryVersion returns a module's version in this build, if the build has modules.
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
