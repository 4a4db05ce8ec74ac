package main

// The timeline of an experiment: for each system, which client believed that it held, before and
// after the fault.

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// span is a period, in seconds from the fault, in which a state lasted.
type span struct {
	Who      string // "A"; "both" for two clients that ran and believed at the same time
	Kind     string // holds, stopped, both; a mark if From equals To
	From, To float64
	Text     string
}

// spans reads a ledger. A span that has not ended ends with the last entry.
func spans(entries []entry, zero time.Time) (all []span) {
	type state struct {
		in, stopped bool
		silent      bool // it was continued after a stop, and has not acted since: as in judge, it believes nothing yet
		since       time.Time
	}
	now := map[string]*state{}
	sec := func(t time.Time) float64 { return t.Sub(zero).Seconds() }
	var bothSince time.Time
	two := func() bool {
		n := 0
		for _, s := range now {
			if s.in && !s.silent {
				n++
			}
		}
		return n > 1
	}
	end := func(who string, s *state, at time.Time) {
		if s.in {
			kind := "holds"
			if s.stopped {
				kind = "stopped"
			}
			all = append(all, span{Who: who, Kind: kind, From: sec(s.since), To: sec(at)})
		}
		s.since = at
	}
	var last time.Time
	for _, e := range entries {
		last = e.At
		s := now[e.Who]
		if s == nil {
			s = &state{}
			now[e.Who] = s
		}
		was := two()
		switch e.What {
		case enter:
			end(e.Who, s, e.At)
			s.in, s.silent = true, false
		case leave, killed:
			end(e.Who, s, e.At)
			s.in = false
		case stop:
			end(e.Who, s, e.At)
			s.stopped, s.silent = true, true
		case write:
			s.silent = s.silent && !e.Looked
		case cont:
			end(e.Who, s, e.At)
			s.stopped = false
		}
		if e.What == write || e.What == fault || e.What == stop || e.What == cont || e.What == killed {
			text := e.Text
			if e.What == write {
				text = "writes"
			}
			all = append(all, span{Who: e.Who, Kind: "mark", From: sec(e.At), To: sec(e.At), Text: text})
		}
		if is := two(); is != was {
			if is {
				bothSince = e.At
			} else {
				all = append(all, span{Who: "both", Kind: "both", From: sec(bothSince), To: sec(e.At)})
			}
		}
	}
	if two() {
		all = append(all, span{Who: "both", Kind: "both", From: sec(bothSince), To: sec(last)})
	}
	for who, s := range now {
		end(who, s, last)
	}
	slices.SortFunc(all, func(a, b span) int {
		switch {
		case a.From < b.From:
			return -1
		case a.From > b.From:
			return 1
		}
		return strings.Compare(a.Who+a.Kind, b.Who+b.Kind)
	})
	return all
}

type lane struct {
	Title string
	Spans []span
}

// widest is the mean width of the characters of a name in DejaVu Sans, of the usual fonts the
// widest.
const widest = 6.5

// timeline draws lanes as SVG, in the reader's light or dark theme.
func timeline(title string, lanes []lane) string {
	const left, width, top, height, bar = 330.0, 1000.0, 74.0, 34.0, 9.0
	margin, from, to := 0.0, -1.0, 2.0
	for _, l := range lanes {
		margin = max(margin, math.Ceil(widest*float64(utf8.RuneCountInString(l.Title))-(left-20)))
		for _, s := range l.Spans {
			to = max(to, s.To)
		}
	}
	to = min(math.Ceil(to), 15)
	x := func(s float64) float64 { return left + (min(max(s, from), to)-from)/(to-from)*(width-left-20) }
	bottom := top + height*float64(len(lanes))
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="%.0f 0 %.0f %.0f" font-family="system-ui, sans-serif" font-size="12">`, -margin, width+margin, bottom+30)
	p(`<title>%s</title>`, html.EscapeString(title))
	p(`<style>.bg{fill:#ffffff}text{fill:#1f2328}.s{font-size:10px;fill:#59636e}.A{fill:#1f6feb}.B{fill:#4d9d4d}.C{fill:#a475f9}.w{fill:none;stroke:#1f6feb;stroke-dasharray:3 2}.x{fill:#d1242f}.l{stroke:#d1d9e0}.z{stroke:#59636e;stroke-dasharray:4 3}.m{stroke:#1f2328}
@media (prefers-color-scheme: dark){.bg{fill:#0d1117}text{fill:#e6edf3}.s{fill:#9198a1}.A{fill:#4493f8}.B{fill:#57ab5a}.C{fill:#ab7df8}.w{stroke:#4493f8}.x{fill:#f85149}.l{stroke:#3d444d}.z{stroke:#9198a1}.m{stroke:#e6edf3}}</style>`)
	p(`<rect class="bg" x="%.0f" width="%.0f" height="%.0f"/>`, -margin, width+margin, bottom+30)
	p(`<text x="16" y="22" font-size="15" font-weight="bold">%s</text>`, html.EscapeString(title))
	for i, legend := range []struct{ class, what string }{{"A", "A believes that it holds"}, {"w", "A is stopped"}, {"B", "B holds"}, {"x", "two at once"}} {
		at := left - 170 + float64(i)*170
		p(`<rect class="%s" x="%.1f" y="36" width="12" height="9"/><text x="%.1f" y="45">%s</text>`, legend.class, at, at+18, legend.what)
	}
	p(`<line class="m" x1="%[1]f" y1="35" x2="%[1]f" y2="46"/><text x="%[2]f" y="45">writes</text>`, left+4*150, left+4*150+8)
	p(`<line class="z" x1="%[1]f" y1="34" x2="%[1]f" y2="47"/><text x="%[2]f" y="45">the fault</text>`, left+4*150-90, left+4*150-82)
	for s := math.Ceil(from); s <= to; s++ {
		class := "l"
		if s == 0 {
			class = "z"
		}
		p(`<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, class, x(s), top-8, x(s), bottom)
		p(`<text class="s" x="%.1f" y="%.1f" text-anchor="middle">%.0f s</text>`, x(s), bottom+14, s)
	}
	for i, l := range lanes {
		y := top + height*float64(i)
		p(`<text x="%.1f" y="%.1f" text-anchor="end">%s</text>`, left-10, y+15, html.EscapeString(l.Title))
		for _, s := range l.Spans {
			if s.To < from || s.From > to {
				continue
			}
			line, class := y, s.Who
			switch s.Who {
			case "B":
				line += bar + 1
			case "C":
				line += 2*bar + 2
			}
			switch s.Kind {
			case "stopped":
				class = "w"
			case "both":
				line, class = y+2*bar+3, "x"
			case "mark":
				if s.Text == "writes" {
					p(`<line class="m" x1="%[1]f" y1="%[2]f" x2="%[1]f" y2="%[3]f"><title>%[4]s writes</title></line>`, x(s.From), line-1, line+bar+1, html.EscapeString(s.Who))
				}
				continue
			}
			h := bar
			if s.Kind == "both" {
				h = 4
			}
			p(`<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.0f"/>`, class, x(s.From), line, max(x(s.To)-x(s.From), 1), h)
		}
	}
	p(`</svg>`)
	return b.String()
}
