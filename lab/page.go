package main

// The page: the results, as Markdown.

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

func (r row) title() string {
	if len(r.System.Sizes) > 1 && r.Size > 1 {
		return fmt.Sprintf("%s, %d servers", r.System.Title, r.Size)
	}
	return r.System.Title
}

// short is the row's name in an experiment's table.
func (r row) short() string {
	if len(r.System.Sizes) > 1 && r.Size > 1 {
		return fmt.Sprintf("%s × %d", r.System.Name, r.Size)
	}
	return r.System.Name
}

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
	p("# The lab's results\n")
	p("<!-- written by lab; do not edit -->\n")
	p("Written by `go run .`: what each lock did in each experiment. [README.md](README.md) says how it is done and what a cell means.\n")
	p("\"Never\" means: not within %v, twice the lock's time and 3 s, or longer where a lock-delay is added. ✗ marks two that held at once, a stale write that got through, and a lock that stayed blocked. – was not run, for the reason below its table; an empty cell is of an experiment that a row has no part in. The lock's time (expiry, lease, session timeout) is %v where nothing else is said.\n",
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

	p("## The systems\n")
	p("| | system | client | what its authors promise |\n|---|---|---|---|")
	for _, s := range l.Systems {
		p("| %s | %s | %s%s | %s |", s.Name, s.Title, s.Client, debianVersion(s.Package), s.Promises)
	}
	p("")
	for _, e := range l.Experiments {
		p("## %s\n\n%s `-only '.*/%s'`, n=%d.\n", e.Title, e.Says, e.Name, l.trials(e))
		if e.Picture {
			p("![%s](results/%s.svg)\n", e.Title, e.Name)
		}
		p("%s", l.details(e))
	}
	return b.String()
}

// trials returns the number of trials that an experiment has with most systems. A row with another
// number states its own.
func (l *lab) trials(e *Experiment) (n int) {
	for _, r := range l.rows() {
		if res := l.results[job{e: e, row: r}.key()]; res != nil {
			n = max(n, res.n())
		}
	}
	return n
}

// details returns an experiment's table without the columns that are the same in each row, and
// notes about these columns and about the missing systems.
func (l *lab) details(e *Experiment) string {
	table := [][]string{{""}}
	for _, c := range e.Columns {
		table[0] = append(table[0], c.Head)
	}
	var notes, reasons []string
	without := map[string][]string{} // rows by the reason for which they are missing
	n := l.trials(e)
	for _, r := range l.rows() {
		res := l.results[job{e: e, row: r}.key()]
		switch {
		case res == nil:
			continue
		case res.Skipped != "":
			if without[res.Skipped] == nil {
				reasons = append(reasons, res.Skipped)
			}
			without[res.Skipped] = append(without[res.Skipped], r.short())
			continue
		}
		for _, f := range res.Failed {
			notes = append(notes, fmt.Sprintf("%s: a trial could not be made: %s.", r.short(), strings.Join(strings.Fields(f), " ")))
		}
		row := []string{r.short()}
		if res.n() < n {
			row[0] += fmt.Sprintf(", n=%d", res.n())
		}
		for _, c := range e.Columns {
			cell := ""
			if res.n() > 0 {
				cell = res.show(c)
			}
			row = append(row, cell)
		}
		table = append(table, row)
	}
	var same []string
	for i := len(table[0]) - 1; i > 0 && len(table) > 2; i-- {
		if slices.ContainsFunc(table[1:], func(row []string) bool { return row[i] != table[1][i] }) {
			continue
		}
		if table[1][i] != "" {
			same = append([]string{table[0][i] + " " + table[1][i]}, same...)
		}
		for k := range table {
			table[k] = slices.Delete(table[k], i, i+1)
		}
	}
	if len(same) > 0 {
		notes = append([]string{"In each row: " + strings.Join(same, "; ") + "."}, notes...)
	}
	for _, reason := range reasons {
		who := "with the others"
		if len(reasons) > 1 {
			who = "with " + strings.Join(without[reason], ", ")
		}
		notes = append(notes, fmt.Sprintf("Not run %s: %s.", who, reason))
	}
	text := ""
	if len(table[0]) > 1 {
		for i, row := range merged(table) {
			text += "| " + strings.Join(row, " | ") + " |\n"
			if i == 0 {
				text += strings.Repeat("|---", len(row)) + "|\n"
			}
		}
		text += "\n"
	}
	for _, n := range notes {
		text += "* " + n + "\n"
	}
	return text
}

// merged combines rows with the same cells into one.
func merged(table [][]string) (rows [][]string) {
	at := map[string]int{} // the index of the row with these cells
	for _, row := range table {
		says := strings.Join(row[1:], "|")
		if i, ok := at[says]; ok {
			rows[i][0] += ", " + row[0]
			continue
		}
		at[says] = len(rows)
		rows = append(rows, row)
	}
	return rows
}

// summary returns a table of systems and experiments, without empty rows.
func (l *lab) summary(es []*Experiment) string {
	text, line := "| |", "|---|"
	for _, e := range es {
		text += fmt.Sprintf(" [%s](#%s), n=%d |", e.Title, anchor(e.Title), l.trials(e))
		line += "---|"
	}
	text += "\n" + line + "\n"
	for _, r := range l.rows() {
		row, some := "| "+r.title()+" |", false
		for _, e := range es {
			cell := ""
			if res := l.results[job{e: e, row: r}.key()]; res != nil {
				cell = e.cell(res, l.trials(e))
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

// anchor returns the anchor of a heading.
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

// debianVersion returns the version of a package after a comma, or "" without the package.
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
