package demo

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// screen prints a timeline that runs downwards: a column for each worker, and one for the resource.
type screen struct {
	w     io.Writer
	began time.Time
	lanes map[string]string // the text of a worker's column between events
	wrote string            // the writers to the resource since the last row
}

// lanes are the columns after an event; a kind that is missing here changes nothing.
var lanes = map[string]string{
	queues: ".", holds: "#", stopped: "-", notified: "", releases: "", killed: "", ends: "",
}

func (s *screen) head(sessionTimeout time.Duration) {
	fmt.Fprintf(s.w, "A ZooKeeper server in this process. When a holder dies, the next one waits\nuntil its session ends, for %v.\n\n", sessionTimeout)
	fmt.Fprintf(s.w, "%8s%-17s%-17s%-17s%s\n%8s%s\n", "", names[0], names[1], names[2], "the resource", "",
		"# holds   . waits   - stopped                      A: accepts A's write")
}

// row prints an event of one worker, and the state of each other worker.
func (s *screen) row(at time.Time, who, text, note string) {
	line := fmt.Sprintf("%5.2fs  ", at.Sub(s.began).Seconds())
	for _, name := range names {
		cell := s.lanes[name]
		if name == who {
			cell = text
		}
		line += fmt.Sprintf("%-17s", cell)
	}
	fmt.Fprintln(s.w, strings.TrimRight(line+s.wrote+note, " "))
	s.wrote = ""
}

func (s *screen) event(e event, note string) {
	if lane, ok := lanes[e.Kind]; ok {
		s.lanes[e.Who] = lane
	}
	text := e.Kind
	switch {
	case e.Kind == writes && note == "":
		s.wrote += e.Who
		return
	case e.Kind == holds:
		text = fmt.Sprintf("%s, token %d", holds, e.Token)
	case note != "" && s.wrote != "":
		note = " " + note
	}
	s.row(e.At, e.Who, text, note)
}
