//go:build linux

package cutup_test

// A run as a picture: TestF12 and TestF13 draw theirs with -chaos.pictures; docs/f12.svg is one of
// them.

import (
	"flag"
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var pictures = flag.String("chaos.pictures", "", "a directory to draw f12.svg and f13.svg in, from the runs of TestF12 and TestF13")

// track is a line of the picture: until when the first holder believed, and from when the next one
// did.
type track struct {
	name    string
	by      string // how the holder was notified, if that is not obvious
	told    time.Duration
	granted time.Duration
}

// draw renders the tracks of a run as SVG. Times count from the cut, in tenths of a second, as on
// the page; the server that was cut off responded to its last ping at silent.
func draw(title string, silent time.Duration, tracks []track) string {
	const left, right, top, rowHeight, bar = 100.0, 20.0, 92.0, 44.0, 16.0
	const width = 860.0
	tenths := func(d time.Duration) float64 { return math.Round(10*d.Seconds()) / 10 }
	last := tenths(silent)
	for _, tr := range tracks {
		last = max(last, tenths(tr.told), tenths(tr.granted))
	}
	from, to := -1.0, math.Ceil(last+1)
	x := func(s float64) float64 { return left + (s-from)/(to-from)*(width-left-right) }
	bottom := top + rowHeight*float64(len(tracks))

	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	text := func(x, y float64, anchor, class, format string, args ...any) {
		p(`<text class="%s" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, class, x, y, anchor, html.EscapeString(fmt.Sprintf(format, args...)))
	}
	rect := func(from, to, y float64, class string) {
		p(`<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.0f"/>`, class, x(from), y, x(to)-x(from), bar)
	}
	p(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" role="img" aria-label="%s">`, width, bottom+44, html.EscapeString(title))
	p(`<style>
  .bg { fill: #ffffff } text { fill: #1f2328; font: 12px sans-serif } .t { font-size: 15px; font-weight: bold } .n { font-weight: bold }
  .first { fill: #4878a8 } .next { fill: #7a9a50 } .both { fill: #c03028 } .late { fill: #b02820 } .s { fill: #59636e }
  .over { paint-order: stroke; stroke: #ffffff; stroke-width: 5px; stroke-linejoin: round }
  .grid { stroke: #d8dee4 } .mark { stroke: #1f2328; stroke-dasharray: 4 3 }
  @media (prefers-color-scheme: dark) {
    .bg { fill: #0d1117 } text { fill: #e6edf3 } .first { fill: #5b94cc } .next { fill: #8fb562 } .both { fill: #f06a5f } .late { fill: #ff8a80 } .s { fill: #9198a1 }
    .over { stroke: #0d1117 } .grid { stroke: #30363d } .mark { stroke: #e6edf3 }
  }
</style>`)
	p(`<rect class="bg" width="%.0f" height="%.0f"/>`, width, bottom+44)
	text(left, 22, "start", "t", "%s", title)
	for i, legend := range []struct{ class, what string }{{"first", "the holder believes that it holds"}, {"next", "the next one holds"}, {"both", "both at once"}} {
		at := left + []float64{0, 230, 380}[i]
		p(`<rect class="%s" x="%.1f" y="34" width="12" height="12"/>`, legend.class, at)
		text(at+18, 44, "start", "", "%s", legend.what)
	}
	for s := math.Ceil(from); s <= to; s++ {
		p(`<line class="grid" x1="%[1]f" y1="%[2]f" x2="%[1]f" y2="%[3]f"/>`, x(s), top-8, bottom)
		if int(s)%2 == 0 {
			text(x(s), bottom+16, "middle", "", "%.0f s", s)
		}
	}
	for _, mark := range []struct {
		at           float64
		anchor, what string
	}{{0, "middle", "cut"}, {tenths(silent), "end", fmt.Sprintf("its server answers pings until %.1f s", tenths(silent))}} {
		p(`<line class="mark" x1="%[1]f" y1="%[2]f" x2="%[1]f" y2="%[3]f"/>`, x(mark.at), top-14, bottom)
		text(x(mark.at), top-20, mark.anchor, "", "%s", mark.what)
	}
	for i, tr := range tracks {
		y := top + rowHeight*float64(i)
		told, granted := tenths(tr.told), tenths(tr.granted)
		text(left-10, y+13, "end", "n", "%s", tr.name)
		rect(from, told, y, "first")
		rect(granted, to, y, "next")
		class, says := "over", fmt.Sprintf("told%s at %.1f s, granted at %.1f s: %.1f s in time", tr.by, told, granted, granted-told)
		if granted < told {
			rect(granted, told, y, "both")
			class, says = "over late", fmt.Sprintf("granted at %.1f s, told%s at %.1f s: %.1f s too late", granted, tr.by, told, told-granted)
		}
		const perLetter = 6.6                              // more than a letter takes, on average
		half := perLetter * float64(len([]rune(says))) / 2 // below its mark, and within the picture
		text(min(max(x((told+granted)/2), left+half), width-right-half), y+30, "middle", class, "%s", says)
	}
	text(left, bottom+36, "start", "s", "three ZooKeeper 3.8.0 servers, tickTime 2 s, syncLimit 5; each line is a lock, with its session timeout")
	p(`</svg>`)
	return b.String()
}

// picture writes the drawing if it is requested.
func picture(t *testing.T, name, svg string) {
	t.Helper()
	if *pictures == "" {
		return
	}
	require.NoError(t, os.WriteFile(filepath.Join(*pictures, name), []byte(svg), 0o644))
}

func TestDraw_ShowsWhoWasNotifiedTooLate(t *testing.T) {
	svg := draw("a <run>", 9*time.Second, []track{
		{"ours", "", 5 * time.Second, 7 * time.Second},
		{"theirs", " SUSPENDED", 10 * time.Second, 6 * time.Second},
	})
	require.Contains(t, svg, "a &lt;run&gt;")
	require.Contains(t, svg, "told at 5.0 s, granted at 7.0 s: 2.0 s in time")
	require.Contains(t, svg, "granted at 6.0 s, told SUSPENDED at 10.0 s: 4.0 s too late")
	require.Equal(t, 2, strings.Count(svg, `<rect class="both"`), "the legend's, and that of the one overlap")
}

const f12Title = "The holder's server, a follower, is cut off from the other servers"
