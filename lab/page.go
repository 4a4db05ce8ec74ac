package main

// The page: what was measured, as Markdown.

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// title is a row's name on the page.
func (r row) title() string {
	if len(r.System.Sizes) > 1 && r.Size > 1 {
		return fmt.Sprintf("%s, %d servers", r.System.Title, r.Size)
	}
	return r.System.Title
}

// rows are all that have a result.
func (l *lab) rows() (rs []row) {
	for _, s := range l.Systems {
		for _, size := range s.Sizes {
			for _, e := range l.Experiments {
				if l.results[job{e: e, row: row{s, size}}.key()] != nil {
					rs = append(rs, row{s, size})
					break
				}
			}
		}
	}
	return rs
}

func (l *lab) page(began time.Time, command string) string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("# The lab: locks side by side, under the same faults\n")
	p("<!-- written by lab; do not edit -->\n")
	p("Each cell is a counted result of a named experiment on real servers. \"never\" means: not within %v, twice the lock's time and 3 s. ✗ marks two that held at once, a stale write that got through, and a lock that stayed blocked. – was not run, for the reason below its table. The lock's time (expiry, lease, session timeout) is %v where nothing else is said. \"Told\" is what a careful user of the client can learn: where the lock itself tells nothing, the events of the connection, and how long a lock is valid. The more runs at a time, the busier the machine: with a time of 3 s and three servers the room of a zklock hold is half a second, and a hold can be lost before the fault. How the witness counts stands in [lab/ledger.go](../lab/ledger.go).\n",
		2*l.TTL+3*time.Second, l.TTL)
	p("%s, `%s`, seed %d, %s. Servers: %s. %s.\n", began.UTC().Format("2006-01-02"), command, l.Seed, time.Since(began).Round(time.Second),
		strings.Join(slices.Sorted(maps.Keys(l.version)), ", "), machine())

	p("## Summary\n")
	for _, g := range groups {
		var es []*Experiment
		for _, e := range l.Experiments {
			if slices.Contains(g.Names, e.Name) {
				es = append(es, e)
			}
		}
		if len(es) > 0 {
			p("### %s\n\n%s", g.Title, l.summary(es))
		}
	}
	p("%s", notRun)

	p("## The systems\n")
	p("| system | client | what its authors promise |\n|---|---|---|")
	for _, s := range l.Systems {
		p("| %s | %s%s | %s |", s.Title, s.Client, debianVersion(s.Package), s.Promises)
	}
	p("")
	for _, e := range l.Experiments {
		p("## %s\n\n%s\n\n`go run . -only '.*/%s'`\n", e.Title, e.Says, e.Name)
		if e.Picture {
			p("![%s](lab/%s.svg)\n", e.Title, e.Name)
		}
		head, line := "| | n |", "|---|---|"
		for _, c := range e.Columns {
			head += " " + c.Head + " |"
			line += "---|"
		}
		p("%s\n%s", head, line)
		var notes, reasons []string
		without := map[string][]string{} // rows by the reason why they are not there
		for _, r := range l.rows() {
			res := l.results[job{e: e, row: r}.key()]
			switch {
			case res == nil:
				continue
			case res.Skipped != "":
				if without[res.Skipped] == nil {
					reasons = append(reasons, res.Skipped)
				}
				without[res.Skipped] = append(without[res.Skipped], r.title())
				continue
			}
			for _, f := range res.Failed {
				notes = append(notes, fmt.Sprintf("%s: a trial could not be made: %s.", r.title(), strings.Join(strings.Fields(f), " ")))
			}
			text := fmt.Sprintf("| %s | %d |", r.title(), res.n())
			for _, c := range e.Columns {
				cell := ""
				if res.n() > 0 {
					cell = res.show(c)
				}
				text += " " + cell + " |"
			}
			p("%s", text)
		}
		p("")
		for _, reason := range reasons {
			notes = append(notes, fmt.Sprintf("Not run, because %s: %s.", reason, strings.Join(without[reason], "; ")))
		}
		for _, n := range notes {
			p("* %s", n)
		}
		if len(notes) > 0 {
			p("")
		}
	}
	return b.String()
}

// summary is a table of systems and experiments, with the rows that have something to say.
func (l *lab) summary(es []*Experiment) string {
	text, line := "| |", "|---|"
	for _, e := range es {
		text += fmt.Sprintf(" [%s](#%s) |", e.Title, anchor(e.Title))
		line += "---|"
	}
	text += "\n" + line + "\n"
	for _, r := range l.rows() {
		row, some := "| "+r.title()+" |", false
		for _, e := range es {
			cell := ""
			if res := l.results[job{e: e, row: r}.key()]; res != nil {
				cell = e.cell(res)
				some = some || res.Skipped == ""
			}
			row += " " + cell + " |"
		}
		if some {
			text += row + "\n"
		}
	}
	return text
}

// anchor is what the place of a heading is called.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		}
		return -1
	}, strings.ToLower(heading))
}

// pictures are the timelines, by experiment.
func (l *lab) pictures() map[string]string {
	all := map[string]string{}
	for _, e := range l.Experiments {
		var lanes []lane
		for _, r := range l.rows() {
			if res := l.results[job{e: e, row: r}.key()]; res != nil && e.Picture && len(res.Spans) > 0 {
				lanes = append(lanes, lane{strings.NewReplacer("*", "", "`", "").Replace(r.title()), res.Spans})
			}
		}
		if len(lanes) > 0 {
			all[e.Name] = timeline(e.Title, lanes)
		}
	}
	return all
}

// debianVersion is a package's, with a comma before it; "" where there is none.
func debianVersion(name string) string {
	if name == "" {
		return ""
	}
	out, err := exec.Command("dpkg-query", "-W", "-f", "${Version}", name).Output()
	if err != nil || len(out) == 0 {
		return ""
	}
	version, _, _ := strings.Cut(string(out), "-")
	return ", " + version
}

// machine says what the figures come from.
func machine() string {
	text := fmt.Sprintf("%d processors, %s, %s", runtime.NumCPU(), runtime.Version(), runtime.GOOS)
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		version, _, _ := strings.Cut(strings.TrimSpace(string(release)), "-")
		text += " " + version
	}
	if mem, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kB int
		if _, err := fmt.Sscanf(string(mem), "MemTotal: %d kB", &kB); err == nil {
			text += fmt.Sprintf(", %d GB", (kB+1<<19)>>20)
		}
	}
	return text
}

// notRun are systems that people compare too. What is said of them is what their authors say.
const notRun = `
### Not run

| | | what its authors promise, and where they say so |
|---|---|---|
| Consul sessions | not run: it is not in Debian | When a session ends, its locks stay blocked for the lock-delay, 15 s unless told otherwise: a guard against two holders, after Chubby's. A session that hangs on no health check is never ended by a false alarm. ([Sessions and distributed locks](https://developer.hashicorp.com/consul/docs/automate/session)) |
| Tair | not run: it is a service | An expiry, and commands that compare before they delete or set in place of scripts: what Redis does here with a script. ([Distributed locks by using TairString](https://www.alibabacloud.com/help/en/redis/use-cases/implementation-of-high-performance-distributed-lock-based-on-tairstring)) |
| Chubby | not run: it cannot be had | A holder gets a sequencer, which the resource checks. For resources that do not, a lock whose holder has failed stays blocked for a lock-delay of up to a minute, which its authors call imperfect. (M. Burrows, The Chubby lock service for loosely-coupled distributed systems, OSDI 2006, section 2.4) |
`
