package demo

// The timeline: one lane a worker, one for the resource. Pure: events in, lines out.

import (
	"fmt"
	"strings"
	"time"
)

// state is what a worker is at a time.
type state struct {
	alive, waits, holds, cut, stopped bool
}

// after is the state after an event.
func (s state) after(kind Kind) state {
	switch kind {
	case Started:
		return state{alive: true, cut: s.cut}
	case Waiting:
		s.waits = true
	case Granted:
		s.waits, s.holds = false, true
	case Lost, Released:
		s.holds = false
	case Cut:
		s.cut = true
	case Healed:
		s.cut = false
	case Stopped:
		s.stopped = true
	case Continued:
		s.stopped, s.holds = false, false // what it believes now is void
	case Killed, Ended, Failed:
		return state{cut: s.cut}
	}
	return s
}

// glyph is how something looks, on a terminal with Unicode and on one without.
type glyph struct{ unicode, ascii rune }

var (
	glyphNone    = glyph{' ', ' '}
	glyphHolds   = glyph{'█', '#'}
	glyphCut     = glyph{'▒', '%'}
	glyphWaits   = glyph{'·', '.'}
	glyphStopped = glyph{'‖', '|'}
	glyphKilled  = glyph{'✖', 'X'}
	glyphLost    = glyph{'◆', '!'}
	glyphRefused = glyph{'✗', 'x'}
)

func (t *Terminal) glyph(g glyph) string {
	if t.unicode {
		return string(g.unicode)
	}
	return string(g.ascii)
}

func (s state) glyph() (g glyph, faint bool) {
	switch {
	case !s.alive:
		return glyphNone, false
	case s.stopped:
		return glyphStopped, false
	case s.holds && s.cut:
		return glyphCut, false
	case s.holds:
		return glyphHolds, false
	case s.waits:
		return glyphWaits, true
	}
	return glyphNone, false
}

type change struct {
	at time.Time
	state
}

type mark struct {
	at time.Time
	glyph
}

// lane is what happened to one worker, in its order.
type lane struct {
	changes []change
	marks   []mark
}

type written struct {
	at       time.Time
	who      string
	accepted bool
}

type timeline struct {
	began  time.Time
	lanes  map[string]*lane
	writes []written
}

func newTimeline(began time.Time) *timeline {
	t := &timeline{began: began, lanes: map[string]*lane{}}
	for _, name := range names {
		t.lanes[name] = &lane{}
	}
	return t
}

func (t *timeline) add(e Event) {
	l := t.lanes[e.Who]
	if l == nil {
		return
	}
	var was state
	if n := len(l.changes); n > 0 {
		was = l.changes[n-1].state
	}
	if is := was.after(e.Kind); is != was {
		l.changes = append(l.changes, change{e.At, is})
	}
	switch e.Kind {
	case Killed:
		l.marks = append(l.marks, mark{e.At, glyphKilled})
	case Lost:
		l.marks = append(l.marks, mark{e.At, glyphLost})
	case Refused:
		l.marks = append(l.marks, mark{e.At, glyphRefused})
	}
	switch e.Kind {
	case Wrote, Refused:
		t.writes = append(t.writes, written{e.At, e.Who, e.Kind == Wrote})
	}
}

// Steps of the scale, and the length that is surely there from the start.
var scales = []time.Duration{
	100 * time.Millisecond, 200 * time.Millisecond, 250 * time.Millisecond, 300 * time.Millisecond,
	320 * time.Millisecond, 350 * time.Millisecond, 400 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second,
}

const (
	usualLength = 21 * time.Second
	laneMargin  = 11
)

// render returns the lines of the timeline up to a time, none longer than the width.
func (t *timeline) render(term *Terminal, until time.Time, width int) []string {
	columns := width - laneMargin - 1
	per := scales[len(scales)-1]
	for _, s := range scales {
		if s*time.Duration(columns) >= max(usualLength, until.Sub(t.began)) {
			per = s
			break
		}
	}
	passed := min(int(until.Sub(t.began)/per)+1, columns)
	end := func(column int) time.Time { return t.began.Add(per * time.Duration(column+1)) }

	rule := strings.Repeat("─", width-1)
	if !term.unicode {
		rule = strings.Repeat("-", width-1)
	}
	lines := []string{term.paint(dim, rule)}
	for _, name := range names {
		lines = append(lines, t.worker(term, name, passed, end))
	}
	return append(lines, t.resource(term, passed, end), t.axis(term, columns, per), t.legend(term, width))
}

// head is the front of a lane.
func head(term *Terminal, name string) string {
	return term.paint(colorOf(name), fmt.Sprintf(" %-*s", laneMargin-1, name))
}

func (t *timeline) worker(term *Terminal, name string, columns int, end func(int) time.Time) string {
	l := t.lanes[name]
	var b strings.Builder
	b.WriteString(head(term, name))
	c, m := 0, 0
	for column := range columns {
		for c < len(l.changes) && l.changes[c].at.Before(end(column)) {
			c++
		}
		g, color := glyphNone, colorOf(name)
		if c > 0 {
			var faint bool
			if g, faint = l.changes[c-1].glyph(); faint {
				color = dim
			}
		}
		if m < len(l.marks) && l.marks[m].at.Before(end(column)) { // one that finds its column taken goes into the next
			g, color = l.marks[m].glyph, red
			m++
		}
		b.WriteString(term.paint(color, term.glyph(g)))
	}
	return b.String()
}

func (t *timeline) resource(term *Terminal, columns int, end func(int) time.Time) string {
	var b strings.Builder
	b.WriteString(head(term, "resource"))
	w := 0
	for column := range columns {
		cell, refused := " ", false
		for ; w < len(t.writes) && t.writes[w].at.Before(end(column)); w++ {
			switch {
			case !t.writes[w].accepted:
				cell, refused = term.paint(red, term.glyph(glyphRefused)), true
			case !refused:
				cell = term.paint(colorOf(t.writes[w].who), t.writes[w].who)
			}
		}
		b.WriteString(cell)
	}
	return b.String()
}

func (t *timeline) axis(term *Terminal, columns int, per time.Duration) string {
	each := 5 * time.Second
	for each < 8*per {
		each *= 2
	}
	axis := []byte(strings.Repeat(" ", columns))
	for at := time.Duration(0); ; at += each {
		label := fmt.Sprintf("%ds", at/time.Second)
		column := int(at / per)
		if column+len(label) > columns {
			break
		}
		copy(axis[column:], label)
	}
	return strings.Repeat(" ", laneMargin) + term.paint(dim, strings.TrimRight(string(axis), " "))
}

func (t *timeline) legend(term *Terminal, width int) string {
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", laneMargin))
	used := laneMargin
	for _, entry := range []struct {
		glyph
		text string
	}{
		{glyphHolds, "holds"}, {glyphWaits, "waits"}, {glyphKilled, "killed"}, {glyphCut, "cut off"}, {glyphLost, "told"},
		{glyphStopped, "stopped"}, {glyphRefused, "refused"},
	} {
		if used += 2 + len(entry.text) + 2; used > width+1 {
			break
		}
		b.WriteString(term.glyph(entry.glyph) + " " + entry.text + "  ")
	}
	return term.paint(dim, strings.TrimRight(b.String(), " "))
}
