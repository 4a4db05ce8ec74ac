package main

// These tests attack the output of the program: after work that fails, too, and with the lock as a
// part of the job.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/zklock/zklock/zktest"
)

type span struct {
	Name                string
	SpanContext, Parent struct{ SpanID, TraceID string }
}

func TestRun_PrintsTheLockAsAPartOfTheJob(t *testing.T) {
	for _, want := range []error{nil, errors.New("the disk is full")} {
		t.Run(fmt.Sprint(want), func(t *testing.T) {
			var out bytes.Buffer
			err := run(t.Context(), zktest.Start(t).Addr(), &out, func(context.Context) error { return want })
			if !errors.Is(err, want) {
				t.Fatal(err)
			}
			spans := map[string]span{}
			for d := json.NewDecoder(&out); ; {
				var s span
				if err := d.Decode(&s); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				spans[s.Name] = s
			}
			job, lock, wait := spans["nightly job"], spans["mutex /locks/nightly"], spans["wait"]
			if len(spans) != 3 || lock.Parent != job.SpanContext || wait.Parent != lock.SpanContext {
				t.Errorf("%+v", spans)
			}
		})
	}
}
