package explore_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/zklock/internal/explore"
)

// walk is a model of a counter below ten that grows by one or two.
func walk() explore.Model[int] {
	return explore.Model[int]{
		Steps: func(s *int, take func(next *int, must bool, what func() string)) {
			for by := 1; by <= 2 && *s+by < 10; by++ {
				next := *s + by
				take(&next, by == 1, func() string { return fmt.Sprint("+", by) })
			}
		},
		Broken: func(*int) string { return "" },
		Stuck:  func(*int) string { return "" },
	}
}

// Each state is visited once, and a broken promise is found by the fewest steps.
func TestModel(t *testing.T) {
	m := walk()
	require.Equal(t, 10, m.Run().States)

	m.Broken = func(s *int) string {
		if *s == 5 {
			return "five"
		}
		return ""
	}
	f := m.Run()
	require.Equal(t, "five", f.Broken)
	require.Len(t, f.Trace, 3)

	m = walk()
	m.Stuck = func(s *int) string { return fmt.Sprint("stuck at ", *s) }
	f = m.Run()
	require.Equal(t, "stuck at 9", f.Broken)
	require.Len(t, f.Trace, 5)
	require.Contains(t, f.String(), "+2\n")

	m = walk()
	m.Encode = func(b []byte, s *int) []byte { return append(b, byte(*s%3)) }
	require.Equal(t, 3, m.Run().States)
}
