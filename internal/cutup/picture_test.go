//go:build linux

package cutup_test

// The recorded run as a picture.

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

// track is a line of the picture: until when the one holder believed, and from when the next one did.
type track struct {
	name    string
	by      string // what told the holder, if that needs saying
	told    time.Duration
	granted time.Duration
}

// draw renders the tracks of a run as SVG. Times count from the cut; the server that was cut off answered its last
// ping at silent.
func draw(title string, silent time.Duration, tracks []track) string {
	const left, right, top, rowHeight, bar = 120.0, 20.0, 92.0, 44.0, 16.0
	const width = 860.0
	last := silent
	for _, tr := range tracks {
		last = max(last, tr.told, tr.granted)
	}
	from, to := -1.0, math.Ceil(last.Seconds()+1)
	x := func(s float64) float64 { return left + (s-from)/(to-from)*(width-left-right) }
	bottom := top + rowHeight*float64(len(tracks))

	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	text := func(x, y float64, anchor, style, format string, args ...any) {
		p(`<text x="%.1f" y="%.1f" text-anchor="%s" %s>%s</text>`, x, y, anchor, style, html.EscapeString(fmt.Sprintf(format, args...)))
	}
	rect := func(from, to, y float64, fill string) {
		p(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.0f" fill="%s"/>`, x(from), y, x(to)-x(from), bar, fill)
	}
	const first, next, both, ink, faint = "#4878a8", "#88a860", "#c03028", "#202020", "#d8d8d8"
	p(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="12" fill="%s">`, width, bottom+44, ink)
	p(`<rect width="100%%" height="100%%" fill="white"/>`)
	text(left, 22, "start", `font-size="15" font-weight="bold"`, "%s", title)
	for i, legend := range []struct{ fill, what string }{{first, "the holder believes that it holds"}, {next, "the next one holds"}, {both, "both at once"}} {
		at := left + float64(i)*230
		p(`<rect x="%.1f" y="34" width="12" height="12" fill="%s"/>`, at, legend.fill)
		text(at+18, 44, "start", "", "%s", legend.what)
	}
	for s := math.Ceil(from); s <= to; s++ {
		p(`<line x1="%[1]f" y1="%[2]f" x2="%[1]f" y2="%[3]f" stroke="%[4]s"/>`, x(s), top-8, bottom, faint)
		if int(s)%2 == 0 {
			text(x(s), bottom+16, "middle", "", "%.0f s", s)
		}
	}
	for _, mark := range []struct {
		at           float64
		anchor, what string
	}{{0, "middle", "cut"}, {silent.Seconds(), "end", fmt.Sprintf("its server answers pings until %.1f s", silent.Seconds())}} {
		p(`<line x1="%[1]f" y1="%[2]f" x2="%[1]f" y2="%[3]f" stroke="%[4]s" stroke-dasharray="4 3"/>`, x(mark.at), top-14, bottom, ink)
		text(x(mark.at), top-20, mark.anchor, "", "%s", mark.what)
	}
	for i, tr := range tracks {
		y := top + rowHeight*float64(i)
		told, granted := tr.told.Seconds(), tr.granted.Seconds()
		text(left-10, y+13, "end", `font-weight="bold"`, "%s", tr.name)
		rect(from, told, y, first)
		rect(granted, to, y, next)
		if granted < told {
			rect(granted, told, y, both)
			text(x(told), y+30, "end", fmt.Sprintf(`fill="%s"`, both), "granted at %.1f s, told%s at %.1f s: %.1f s too late", granted, tr.by, told, told-granted)
			continue
		}
		text(x(told), y+30, "start", "", "told%s at %.1f s, granted at %.1f s: %.1f s in time", tr.by, told, granted, granted-told)
	}
	text(left, bottom+36, "start", `fill="#606060"`, "three ZooKeeper 3.8.0 servers, tickTime 2 s, syncLimit 5; each line is a lock, with its session timeout")
	p(`</svg>`)
	return b.String()
}

// picture writes the drawing where it is asked for.
func picture(t *testing.T, name, svg string) {
	t.Helper()
	if *pictures == "" {
		return
	}
	require.NoError(t, os.WriteFile(filepath.Join(*pictures, name), []byte(svg), 0o644))
}

func TestDraw_ShowsWhoWasToldTooLate(t *testing.T) {
	svg := draw("a <run>", 9*time.Second, []track{
		{"ours", "", 5 * time.Second, 7 * time.Second},
		{"theirs", " SUSPENDED", 10 * time.Second, 6 * time.Second},
	})
	require.Contains(t, svg, "a &lt;run&gt;")
	require.Contains(t, svg, "told at 5.0 s, granted at 7.0 s: 2.0 s in time")
	require.Contains(t, svg, "granted at 6.0 s, told SUSPENDED at 10.0 s: 4.0 s too late")
	require.Equal(t, 2, strings.Count(svg, `fill="#c03028"/>`), "the legend's, and that of the one overlap")
}
