package pages

// This test compares docs/service.md with the errors of the package: which of them are worth
// another try.

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock"
)

// sentinels are the errors of the package, and whether each is final.
var sentinels = map[string]struct {
	err   error
	final bool
}{
	"ErrNotAcquired":            {zklock.ErrNotAcquired, false},
	"ErrNotConnected":           {zklock.ErrNotConnected, false},
	"ErrUpgrade":                {zklock.ErrUpgrade, true},
	"ErrNotHeld":                {zklock.ErrNotHeld, false},
	"ErrResigned":               {zklock.ErrResigned, false},
	"ErrLost":                   {zklock.ErrLost, false},
	"ErrNotConfirmed":           {zklock.ErrNotConfirmed, false},
	"ErrClosed":                 {zklock.ErrClosed, true},
	"ErrSequenceExhausted":      {zklock.ErrSequenceExhausted, false},
	"ErrSessionTimeoutTooShort": {zklock.ErrSessionTimeoutTooShort, true},
	"ErrNoChroot":               {zklock.ErrNoChroot, true},
	"ErrTooManyLockNodes":       {zklock.ErrTooManyLockNodes, false},
	"ErrAuthFailed":             {zklock.ErrAuthFailed, true},
	"ErrCertificate":            {zklock.ErrCertificate, false},
	"ErrSessionFileInUse":       {zklock.ErrSessionFileInUse, true},
}

// Each error of the package is final or not, as docs/service.md states.
func TestIsFinal_EachErrorOfThePackage(t *testing.T) {
	exported := regexp.MustCompile(`(?m)^\t(Err\w+) += `).FindAllStringSubmatch(readFile(t, "errors.go"), -1)
	page := readFile(t, "docs/service.md")
	for _, found := range exported {
		name := found[1]
		s, ok := sentinels[name]
		require.True(t, ok, "say of %s whether it is final", name)
		require.Equal(t, s.final, zklock.IsFinal(s.err), name)
		require.Equal(t, s.final, zklock.IsFinal(&zklock.Error{Op: "acquire", Path: "/job", Err: fmt.Errorf("%w: and why", s.err)}), name)
		row := regexp.MustCompile("(?m)^\\| `" + name + "` \\|[^|]*\\| (.*) \\|$").FindStringSubmatch(page)
		require.NotNil(t, row, "docs/service.md has no row of %s", name)
		require.Equal(t, s.final, row[1] == "no" || strings.HasPrefix(row[1], "no:"), "docs/service.md, %s: %s", name, row[1])
	}
	require.Len(t, sentinels, len(exported))
}
