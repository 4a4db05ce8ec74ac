package main

// The harness is held against a lock that is right and one that lets everybody in.

import (
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The tests' own binary is the clients' process too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "client" {
		if err := clientMain(os.Args[2:]); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// outcomes runs experiments once each with a lock.
func outcomes(t *testing.T, only string) map[string]outcome {
	t.Helper()
	s := settings{Staged: 1, Raced: 1, Seed: 1, TTL: time.Second, Jobs: 20, Log: io.Discard}
	require.NoError(t, s.choose(only, false, false))
	l, err := newLab(s)
	require.NoError(t, err)
	defer func() { require.NoError(t, l.close()) }()
	require.NoError(t, l.run(t.Context()))
	got := map[string]outcome{}
	for _, r := range l.sorted() {
		require.Empty(t, r.Failed, "%s", r.Experiment)
		if r.Skipped == "" {
			require.NotEmpty(t, r.Outcomes, r.Experiment)
			got[r.Experiment] = r.Outcomes[0]
		}
	}
	return got
}

func TestKnownRight_NoExperimentFindsItWrong(t *testing.T) {
	got := outcomes(t, "known-right/.*")
	for name, o := range got {
		require.Zero(t, o["doubles"], name)
		require.Zero(t, o["fenced"], name)
		require.Zero(t, o["backwards"], name)
	}
	require.Contains(t, got["crash"], "granted")
	require.Zero(t, got["order"]["against"])
	require.EqualValues(t, 100, got["herd-100"]["grants"])
	require.Positive(t, got["contend"]["rate"])
	require.EqualValues(t, 1, got["delay"]["unfenced"])
	require.Zero(t, got["cut"]["given away"], "it never gives away what is held")
	require.Zero(t, got["stop"]["given away"])
}

func TestKnownWrong_EveryExperimentFindsItWrong(t *testing.T) {
	got := outcomes(t, "known-wrong/(crash|cut|blink|stop|late|long|order|delay)")
	for name, o := range got {
		switch name {
		case "delay": // its holders are never in at one time
			require.EqualValues(t, 1, o["unfenced"])
		default:
			require.Positive(t, o["doubles"], name)
		}
	}
	require.EqualValues(t, 2, got["cut"]["unfenced"])
	require.EqualValues(t, 1, got["stop"]["believes"])
	require.EqualValues(t, 1, got["late"]["broken"])
}
