package demo

// What is seen while it goes on: lines, or lines and a timeline below them.

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// screen shows what happens. Its methods may be called from any goroutine.
type screen interface {
	scene(title string)
	say(format string, args ...any)
	event(Event)
	close()
}

// narrate says in words what an event is; "" if it is not worth a line.
func narrate(e Event) string {
	switch e.Kind {
	case Started:
		return "starts, " + e.Text
	case Waiting:
		return "queues"
	case Granted:
		return fmt.Sprintf("holds the lock, token %d", e.Token)
	case Checked:
		return "has seen that it holds, and is about to write"
	case Refused:
		return "its write is refused: " + e.Text
	case Lost:
		return "is told: lock lost, " + e.Text
	case Released:
		return "releases"
	case Killed:
		return "SIGKILL, " + e.Text
	case Cut:
		return "is cut off from the servers, and holds"
	case Healed:
		return "is connected again"
	case Stopped:
		return "SIGSTOP"
	case Continued:
		return "SIGCONT"
	case Ended:
		return "ends"
	case Failed:
		return "FAILED: " + e.Text
	}
	return ""
}

// plain prints a line for everything.
type plain struct {
	mu    sync.Mutex
	w     io.Writer
	began time.Time
}

func (p *plain) line(at time.Time, who, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.w, "%6.2fs  %-1s  %s\n", at.Sub(p.began).Seconds(), who, text)
}

func (p *plain) scene(title string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.w, "\n%s\n", strings.ToUpper(title[:1])+title[1:])
}

func (p *plain) say(format string, args ...any) { p.line(now(), "", fmt.Sprintf(format, args...)) }
func (p *plain) close()                         {}

func (p *plain) event(e Event) {
	if text := narrate(e); text != "" {
		p.line(e.At, e.Who, text)
	}
}

// Terminal is one that a timeline can be drawn on.
type Terminal struct {
	w       io.Writer
	size    func() (width, height int)
	color   bool
	unicode bool
}

const (
	leastWidth  = 50
	leastHeight = 16
)

// NewTerminal returns the terminal behind f, or nil if it is none, or not one that can draw.
func NewTerminal(f *os.File) *Terminal {
	if runtime.GOOS == "windows" || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" || os.Getenv("TERM") == "" {
		return nil
	}
	t := &Terminal{w: f, color: os.Getenv("NO_COLOR") == ""}
	t.size = func() (int, int) {
		w, h, err := term.GetSize(int(f.Fd()))
		if err != nil {
			return 80, 24
		}
		return w, h
	}
	if w, h := t.size(); w < leastWidth || h < leastHeight {
		return nil
	}
	locale := os.Getenv("LANG")
	for _, name := range []string{"LC_CTYPE", "LC_ALL"} { // the latter wins
		if v := os.Getenv(name); v != "" {
			locale = v
		}
	}
	locale = strings.ToUpper(locale)
	t.unicode = strings.Contains(locale, "UTF-8") || strings.Contains(locale, "UTF8")
	return t
}

// live is lines that scroll, and the timeline below them, drawn again ten times a second.
type live struct {
	t    *Terminal
	quit chan struct{}
	done chan struct{}

	mu       sync.Mutex
	timeline *timeline
	pending  []string // lines to print above the timeline
	drawn    int      // lines of the timeline that are on the screen
}

func newLive(t *Terminal, began time.Time) *live {
	l := &live{t: t, quit: make(chan struct{}), done: make(chan struct{}), timeline: newTimeline(began)}
	fmt.Fprint(t.w, "\x1b[?25l") // no cursor
	go func() {
		defer close(l.done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				l.draw()
			case <-l.quit:
				return
			}
		}
	}()
	return l
}

func (l *live) close() {
	close(l.quit)
	<-l.done
	l.draw()
	fmt.Fprint(l.t.w, "\x1b[?25h")
}

func (l *live) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = append(l.pending, line)
}

func (l *live) scene(title string) {
	l.add("")
	l.add(l.t.paint(bold, strings.ToUpper(title[:1])+title[1:]))
}

func (l *live) at(t time.Time) string {
	return l.t.paint(dim, fmt.Sprintf("%6.2fs", t.Sub(l.timeline.began).Seconds()))
}

func (l *live) say(format string, args ...any) {
	l.add(l.at(now()) + "     " + fmt.Sprintf(format, args...))
}

func (l *live) event(e Event) {
	if text := narrate(e); text != "" {
		if e.Kind == Killed || e.Kind == Lost || e.Kind == Refused || e.Kind == Failed {
			text = l.t.paint(red, text)
		}
		l.add(l.at(e.At) + "  " + l.t.paint(colorOf(e.Who), e.Who) + "  " + text)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timeline.add(e)
}

func (l *live) draw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b bytes.Buffer
	if l.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r", l.drawn)
	}
	width, _ := l.t.size()
	block := l.timeline.render(l.t, now(), width)
	for _, line := range append(l.pending, block...) {
		b.WriteString(line + "\x1b[K\r\n")
	}
	b.WriteString("\x1b[J")
	l.pending, l.drawn = nil, len(block)
	_, _ = l.t.w.Write(b.Bytes())
}

// Colours, as the terminal's own: the numbers of SGR.
const (
	bold = 1
	dim  = 2
	red  = 31
)

func (t *Terminal) paint(color int, s string) string {
	if !t.color || color == 0 || s == "" {
		return s
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", color, s)
}

func colorOf(who string) int {
	return map[string]int{"A": 36, "B": 33, "C": 35}[who]
}
