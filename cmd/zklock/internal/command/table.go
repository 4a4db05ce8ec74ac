package command

// How queues and locks are printed, for people and for programs.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/internal/queue"
)

type lockEntry struct {
	Path  string  `json:"path"`
	Queue []entry `json:"queue"`
	Limit *int    `json:"limit,omitempty"` // of a semaphore whose clients share it

	isSemaphore bool
	left        int // how many of the queue are left out
}

// heldOf returns the locks that have a holder, with their holders.
func heldOf(locks []lockEntry) (held []lockEntry) {
	for _, l := range locks {
		all := len(l.Queue)
		l.Queue = slices.DeleteFunc(l.Queue, func(e entry) bool { return !e.Holds })
		if l.left = all - len(l.Queue); len(l.Queue) > 0 {
			held = append(held, l)
		}
	}
	return held
}

type entry struct {
	Node       string    `json:"node"`
	Mode       string    `json:"mode"`
	Holds      bool      `json:"holds"`
	Token      int64     `json:"token"`
	Session    string    `json:"session,omitempty"` // hexadecimal, as in the servers' logs
	Host       string    `json:"host,omitempty"`
	Pid        int       `json:"pid,omitempty"`
	Name       string    `json:"name,omitempty"` // of run --name
	Data       string    `json:"data"`
	Created    time.Time `json:"created"`
	AgeSeconds float64   `json:"age_seconds"`

	DelayUntil *time.Time `json:"delay_until,omitempty"` // it waits for the lock-delay
}

func entryOf(p zklock.Participant) entry {
	e := entry{Node: p.Node, Mode: modeOf(nameOf(p.Node)), Holds: p.Holds, Token: p.Token, Data: string(p.Data), Created: p.Created, AgeSeconds: max(time.Since(p.Created), 0).Seconds()}
	if p.SessionID != 0 {
		e.Session = fmt.Sprintf("%#x", uint64(p.SessionID))
	}
	process, name, _ := strings.Cut(e.Data, " ")
	if e.Host, e.Pid = hostAndPid(process); e.Pid != 0 {
		e.Name = name
	}
	if !p.DelayUntil.IsZero() {
		e.DelayUntil = &p.DelayUntil
	}
	return e
}

// nodeData returns the data of the lock node of a run with a name: the name follows the data that
// zklock writes without one.
func nodeData(name string) []byte {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Appendf(nil, "%s:%d %s", host, os.Getpid(), name)
}

// process returns the name of the process of a participant that has written host and pid.
func (e entry) process() string {
	process := fmt.Sprintf("%s, pid %d", e.Host, e.Pid)
	if e.Name != "" {
		return fmt.Sprintf("%s (%s)", e.Name, process)
	}
	return process
}

// hostAndPid parses "host:pid", the data that zklock writes; other clients may write anything.
func hostAndPid(data string) (host string, pid int) {
	i := strings.LastIndexByte(data, ':')
	if i <= 0 {
		return "", 0
	}
	pid, err := strconv.Atoi(data[i+1:])
	if err != nil || pid <= 0 || strings.ContainsFunc(data[:i], func(r rune) bool { return r == ' ' || !strconv.IsPrint(r) }) {
		return "", 0
	}
	return data[:i], pid
}

func entriesOf(q lockQueue) []entry {
	ps := q.all()
	entries := make([]entry, len(ps)) // not nil: an empty queue is []
	for i, p := range ps {
		entries[i] = entryOf(p)
		if q.isSemaphore {
			entries[i].Mode = modePermit
		}
	}
	return entries
}

func writeJSON[T any](w io.Writer, list []T) error {
	if list == nil {
		list = []T{}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(list)
}

// The widths of a table, unless a path is long.
const (
	lineWidth = 80
	wideWidth = 120
)

type printer struct {
	out    io.Writer
	asJSON bool
	wide   bool // all columns
	all    bool // unused locks, too
}

func (p printer) queue(entries []entry) error {
	if p.asJSON {
		return writeJSON(p.out, entries)
	}
	rows := [][]string{{"STATE", "NODE", "SESSION", "WHO", "QUEUED"}}
	if p.wide {
		rows[0] = []string{"STATE", "NODE", "MODE", "TOKEN", "SESSION", "WHO", "QUEUED SINCE"}
	}
	for _, e := range entries {
		if p.wide {
			rows = append(rows, []string{e.state(), shortName(e.Node), e.Mode, strconv.FormatInt(e.Token, 10), cmp.Or(e.Session, "-"), e.who(), e.queued()})
		} else {
			rows = append(rows, []string{e.state(), shortName(e.Node), cmp.Or(e.Session, "-"), e.who(), e.age()})
		}
	}
	return p.table(rows)
}

// locks prints one row for each lock. unused is how many it leaves out.
func (p printer) locks(locks []lockEntry) (unused int, err error) {
	if p.asJSON {
		return 0, writeJSON(p.out, locks)
	}
	rows := [][]string{{"LOCK", "MODE", "HOLD", "QUEUE", "WHO", "QUEUED"}}
	if p.wide {
		rows[0] = []string{"LOCK", "MODE", "HOLD", "QUEUE", "TOKEN", "SESSION", "WHO", "QUEUED SINCE"}
	}
	for _, l := range locks {
		if len(l.Queue) == 0 && !p.all {
			unused++
			continue
		}
		mode, first := "-", []string{"-", "-", "-", "-"}
		if l.isSemaphore {
			mode = modePermit
		}
		if len(l.Queue) > 0 {
			e := l.Queue[0]
			mode, first = e.Mode, []string{strconv.FormatInt(e.Token, 10), cmp.Or(e.Session, "-"), e.who(), e.queued()}
			if !p.wide {
				first[3] = e.age()
			}
		}
		if !p.wide {
			first = first[2:]
		}
		rows = append(rows, append([]string{l.Path, mode, l.holders(), strconv.Itoa(len(l.Queue) + l.left)}, first...))
	}
	return unused, p.table(rows)
}

// table writes rows below a header, aligned as a terminal shows them. The last column but one names
// a client, and is cut to the width that the other columns leave.
func (p printer) table(rows [][]string) error {
	who := len(rows[0]) - 2
	room, widths := lineWidth, make([]int, len(rows[0]))
	if p.wide {
		room = wideWidth
	}
	for i := range rows[0] {
		widest := 0
		for _, row := range rows {
			row[i] = escaped(row[i])
			widest = max(widest, columnsOf(row[i]))
		}
		if widths[i] = widest; i != who {
			room -= widest
		}
	}
	room, widths[who] = max(room-2*(len(rows[0])-1), shortestWho), 0
	for _, row := range rows {
		row[who] = cutTo(room, row[who])
		widths[who] = max(widths[who], columnsOf(row[who]))
	}
	var b strings.Builder
	for _, row := range rows {
		for i, cell := range row[:len(row)-1] {
			b.WriteString(cell + strings.Repeat(" ", widths[i]-columnsOf(cell)+2))
		}
		b.WriteString(row[len(row)-1] + "\n")
	}
	_, err := io.WriteString(p.out, b.String())
	return err
}

const (
	shortestWho = 16 // however long a path is
	keptTail    = 6  // of a text that is cut: the pid
)

// cutTo cuts a text to n columns, and keeps its end.
func cutTo(n int, s string) string {
	if columnsOf(s) <= n {
		return s
	}
	r := []rune(s)
	head, tail := r[:len(r)-keptTail], string(r[len(r)-keptTail:])
	for columnsOf(string(head))+1+columnsOf(tail) > n {
		head = head[:len(head)-1]
	}
	return string(head) + "…" + tail
}

// columnsOf returns how many columns of a terminal a text takes: two for a character of East Asia,
// and for an emoji.
func columnsOf(text string) (n int) {
	for _, r := range text {
		n++
		if r >= 0x1100 && r < 0x1160 || r >= 0x2e80 {
			n++
		}
	}
	return n
}

func (l lockEntry) holders() string {
	n := 0
	for _, e := range l.Queue {
		if e.Holds {
			n++
		}
	}
	if l.Limit != nil {
		return fmt.Sprintf("%d/%d", n, *l.Limit)
	}
	return strconv.Itoa(n)
}

func (e entry) state() string {
	if e.Holds {
		return "holds"
	}
	return "waits"
}

// who returns the data that the participant has written into its node: host:pid, the name of a
// candidate, or any text of another client.
func (e entry) who() string {
	if e.Data == "" {
		return "-"
	}
	if strings.TrimSpace(e.Data) != e.Data || strings.ContainsFunc(e.Data, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(e.Data)
	}
	return e.Data
}

// shortName returns a node's name without the parts that make it unique: the path, the uuid.
func shortName(node string) string {
	name := nameOf(node)
	for _, marker := range append([]string{queue.LatchName, queue.LeaseName}, queue.Markers...) {
		if _, is := queue.Parse(name, []string{marker}); is {
			return name[strings.LastIndex(name, marker):]
		}
	}
	return name
}

// queued returns since when the node exists. No node shows when its owner got the lock.
func (e entry) queued() string { return e.Created.Local().Format(time.RFC3339) }

func (e entry) since() time.Duration {
	return time.Duration(e.AgeSeconds * float64(time.Second)).Round(time.Second)
}

// age is since, in eight characters for a century or two.
func (e entry) age() string {
	const day = 24 * time.Hour
	d := e.since()
	if d < 4*day {
		return d.String()
	}
	return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
}
