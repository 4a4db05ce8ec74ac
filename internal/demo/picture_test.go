package demo

// The timeline of a run as a picture, for the README.

import (
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var pictureFile = flag.String("picture", "", "a file to draw the timeline in, of a run as make demo does it")

const pictureWidth, perLetter = 860.0, 6.6 // more than a letter takes, on average

// draw renders a run as SVG: a lane for each worker, with what happened to it, and one for the resource.
func draw(began time.Time, events []Event) string {
	const left, right, top, rowHeight, bar = 84.0, 20.0, 66.0, 46.0, 16.0
	tl := newTimeline(began)
	last := began
	for _, e := range events {
		tl.add(e)
		if e.At.After(last) {
			last = e.At
		}
	}
	seconds := math.Ceil(last.Sub(began).Seconds())
	x := func(at time.Time) float64 { return left + at.Sub(began).Seconds()/seconds*(pictureWidth-left-right) }
	bottom := top + rowHeight*float64(len(names)+1)
	height := bottom + 30

	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	text := func(x, y float64, anchor, class, words string) {
		p(`<text class="%s" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, class, x, y, anchor, words)
	}
	cross := func(x, y float64) {
		p(`<path class="x" d="M%.1f %.1fl10 10m0 -10l-10 10"/>`, x-5, y-5)
	}
	p(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" role="img" aria-label="Three processes contend for one lock: one holder is killed, one cut off, one stopped">`, pictureWidth, height)
	p(`<style>
  .bg { fill: #ffffff } text { fill: #1f2328; font: 12px sans-serif } .t { font-size: 15px; font-weight: bold } .n { font-weight: bold }
  .A { fill: #2f7fb8 } .B { fill: #b8860b } .C { fill: #8a5cc0 } .cut { fill-opacity: 0.4 } .stopped { fill: #9aa4ae } .waits { fill-opacity: 0.35 }
  .x { stroke: #c03028; stroke-width: 3; fill: none } .bad { fill: #b02820 } .grid { stroke: #d8dee4 }
  .over { paint-order: stroke; stroke: #ffffff; stroke-width: 5px; stroke-linejoin: round }
  @media (prefers-color-scheme: dark) {
    .bg { fill: #0d1117 } text { fill: #e6edf3 } .A { fill: #58a6e0 } .B { fill: #d9a520 } .C { fill: #b18ae0 } .stopped { fill: #6e7781 }
    .x { stroke: #ff7b72 } .bad { fill: #ff8a80 } .grid { stroke: #30363d } .over { stroke: #0d1117 }
  }
</style>`)
	p(`<rect class="bg" width="%.0f" height="%.0f"/>`, pictureWidth, height)
	text(left, 22, "start", "t", "One lock, three processes, and what goes wrong")
	for i, legend := range []struct{ class, what string }{{"A waits", "waits"}, {"A", "holds"}, {"A cut", "holds, cut off from the servers"}, {"stopped", "stopped"}} {
		at := left + []float64{0, 80, 160, 390}[i]
		size := 12
		if i == 0 {
			size = 4
		}
		p(`<rect class="%s" x="%.1f" y="%d" width="12" height="%d"/>`, legend.class, at, 42-size/2, size)
		text(at+18, 46, "start", "", legend.what)
	}
	for s := 0.0; s <= seconds; s++ {
		at := x(began.Add(time.Duration(s) * time.Second))
		p(`<line class="grid" x1="%.1[1]f" y1="%.1[2]f" x2="%.1[1]f" y2="%.1[3]f"/>`, at, top-8, bottom)
		if int(s)%5 == 0 {
			text(at, bottom+16, "middle", "", fmt.Sprintf("%.0f s", s))
		}
	}
	for i, name := range names {
		y := top + rowHeight*float64(i)
		text(left-12, y+13, "end", "n", name)
		changes := tl.lanes[name].changes
		for k, c := range changes {
			end := last
			if k+1 < len(changes) {
				end = changes[k+1].at
			}
			class, tall := name, bar
			switch {
			case !c.alive || !c.holds && !c.waits && !c.stopped:
				continue
			case c.stopped:
				class = "stopped"
			case c.holds && c.cut:
				class += " cut"
			case !c.holds:
				class, tall = class+" waits", 4
			}
			p(`<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.0f"/>`, class, x(c.at), y+(bar-tall)/2, x(end)-x(c.at), tall)
		}
		free := left // where the next label may begin
		for k, e := range events {
			if e.Who != name {
				continue
			}
			words := map[Kind]string{Killed: "killed", Cut: "cut off", Lost: "told that it lost the lock", Stopped: "stopped", Refused: "its late write is refused"}[e.Kind]
			if words == "" || e.Kind == Lost && refusedJustBefore(events[:k], e) {
				continue
			}
			if e.Kind == Killed || e.Kind == Refused {
				cross(x(e.At), y+bar/2)
			}
			if e.Kind == Lost {
				p(`<path class="bad" d="M%.1f %.1fl6 6l-6 6l-6 -6z"/>`, x(e.At), y+bar/2-6)
			}
			wide := perLetter * float64(len(words))
			at := max(free, min(x(e.At)-wide/2, pictureWidth-right-wide))
			class := "over bad"
			if e.Kind == Cut || e.Kind == Stopped {
				class = "over"
			}
			text(at, y+30, "start", class, words)
			free = at + wide + 6
		}
	}
	y := top + rowHeight*float64(len(names))
	text(left-12, y+13, "end", "n", "resource")
	for _, w := range tl.writes {
		if w.accepted {
			p(`<rect class="%s" x="%.1f" y="%.1f" width="2" height="%.0f"/>`, w.who, x(w.at)-1, y, bar)
		}
	}
	for _, w := range tl.writes {
		if !w.accepted {
			cross(x(w.at), y+bar/2)
		}
	}
	text(left, y+30, "start", "over", "each write that it takes, and the one that it refuses for its token")
	p(`</svg>`)
	return b.String()
}

// refusedJustBefore says whether the loss is news that came with a refused write: one label is enough.
func refusedJustBefore(events []Event, lost Event) bool {
	for _, e := range events {
		if e.Who == lost.Who && e.Kind == Refused && lost.At.Sub(e.At) < time.Second {
			return true
		}
	}
	return false
}

// requireLabelsApart fails if a label leaves the picture, or lies over another.
func requireLabelsApart(t *testing.T, svg string) {
	t.Helper()
	type label struct{ from, to, y float64 }
	var labels []label
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		start, ok := token.(xml.StartElement)
		if !ok || start.Name.Local != "text" {
			continue
		}
		var words, anchor string
		var l label
		for _, a := range start.Attr {
			switch a.Name.Local {
			case "x":
				_, err = fmt.Sscan(a.Value, &l.from)
			case "y":
				_, err = fmt.Sscan(a.Value, &l.y)
			case "text-anchor":
				anchor = a.Value
			}
			require.NoError(t, err)
		}
		require.NoError(t, d.DecodeElement(&words, &start))
		wide := perLetter * float64(len(words))
		l.from -= map[string]float64{"start": 0, "middle": wide / 2, "end": wide}[anchor]
		l.to = l.from + wide
		require.GreaterOrEqual(t, l.from, 0.0, "%q leaves the picture", words)
		require.LessOrEqual(t, l.to, pictureWidth, "%q leaves the picture", words)
		for _, o := range labels {
			require.False(t, math.Abs(o.y-l.y) < 12 && l.from < o.to && o.from < l.to, "%q lies over another label", words)
		}
		labels = append(labels, l)
	}
	require.Greater(t, len(labels), 12)
}

func TestPicture(t *testing.T) {
	began := time.Now()
	var events []Event
	add := func(seconds float64, who string, kind Kind) {
		events = append(events, Event{At: began.Add(time.Duration(seconds * float64(time.Second))), Who: who, Kind: kind})
	}
	add(0, "A", Started)
	add(0.1, "A", Granted)
	add(0.2, "A", Wrote)
	add(1, "A", Cut)
	add(2, "A", Lost)
	add(2, "B", Started)
	add(2.1, "B", Granted)
	add(3, "B", Killed)
	add(3, "C", Started)
	add(4, "C", Granted)
	add(14, "C", Stopped)
	add(20.8, "C", Continued)
	add(20.9, "C", Refused)
	add(20.95, "C", Lost)
	svg := draw(began, events)
	requireLabelsApart(t, svg)
	for _, words := range []string{"killed", "cut off", "told that it lost the lock", "its late write is refused"} {
		require.Equal(t, 1, strings.Count(svg, ">"+words+"<"), words)
	}
	require.Equal(t, 3, strings.Count(svg, `class="x"`), "one is killed; one write is refused, in its lane and at the resource")
}

// docs/demo.svg is the timeline of a run of the demo.
func TestPicture_OfARun(t *testing.T) {
	const page = "../../docs/demo.svg"
	if *pictureFile != "" {
		var events []Event
		_, err := run(t, func(c *Config) {
			c.tick, c.SessionTimeout = 0, 0 // those of make demo
			c.saw = func(e Event) { events = append(events, e) }
		})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(*pictureFile, []byte(draw(events[0].At, events)), 0o644))
	}
	svg, err := os.ReadFile(page)
	require.NoError(t, err)
	requireLabelsApart(t, string(svg))
}
