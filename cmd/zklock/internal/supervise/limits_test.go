package supervise

// Attacks on the arithmetic of when the command has to end.

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPlan_Until(t *testing.T) {
	p := Plan{KillAfter: 3 * time.Second, Margin: 500 * time.Millisecond}
	d := Moment(time.Hour)
	l := p.until(d)
	require.Equal(t, p.KillAfter, l.Kill.Sub(l.Term))
	require.Equal(t, p.Margin, d.Sub(l.Kill))
}

func TestLimits_EndNow(t *testing.T) {
	l := limits{Term: 1000, Kill: 2000}
	require.Equal(t, limits{Term: 10, Kill: 110}, l.endNow(10, 100), "before the limits: now, and the grace")
	require.Equal(t, limits{Term: 10, Kill: 2000}, l.endNow(10, 5000), "the grace does not move the last limit")
	require.Equal(t, limits{Term: 1000, Kill: 1600}, l.endNow(1500, 100), "what has begun is not begun again")
}
