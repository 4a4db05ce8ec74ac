// The command lab exposes well-known locks to the same faults, on real servers that it starts, and
// counts the outcomes.
//
//	go run .                             # all of it; the page goes to standard output
//	go run . -list                       # the systems and the experiments
//	go run . -only 'redlock/.*'          # SYSTEM/EXPERIMENT, two regular expressions
//	go run . -quick                      # three systems, four experiments: for its checks
//	go run . -out results.md             # the page that is committed; pictures go to results/
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	var err error
	if len(os.Args) > 1 && os.Args[1] == "client" {
		err = clientMain(os.Args[2:])
	} else {
		err = labMain(os.Args[1:], os.Stdout, os.Stderr)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

func labMain(args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("lab", flag.ContinueOnError)
	list := flags.Bool("list", false, "print the systems and the experiments")
	only := flags.String("only", ".*/.*", "SYSTEM/EXPERIMENT, two regular expressions that match whole names")
	quick := flags.Bool("quick", false, "three systems, four experiments, twice each")
	n := flags.Int("n", 5, "how often a staged experiment is run; a raced one ten times as often")
	seed := flags.Uint64("seed", 1, "of the random times in the experiments")
	ttl := flags.Duration("ttl", 3*time.Second, "the lock's time")
	jobs := flags.Int("jobs", 20, "how much runs at a time: a trial in Go counts 1, in Python 2, in Java 3")
	page := flags.String("out", "", "a file for the page")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("what is %q?", flags.Arg(0))
	}
	s := settings{Staged: *n, Raced: 10 * *n, Seed: *seed, TTL: *ttl, Jobs: *jobs, Log: progress, Require: os.Getenv("ZKLOCK_REQUIRE") == "1"}
	if *quick {
		s.Staged, s.Raced = 2, 10
	}
	if err := s.choose(*only, *quick); err != nil {
		return err
	}
	if *list {
		for _, sys := range s.Systems {
			fmt.Fprintf(out, "%-18s %s\n", sys.Name, sys.Title)
		}
		fmt.Fprintln(out)
		for _, e := range s.Experiments {
			fmt.Fprintf(out, "%-18s %s\n", e.Name, e.Title)
		}
		return nil
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := newLab(s)
	if err != nil {
		return err
	}
	began := time.Now()
	err = l.run(ctx)
	text := l.page(began, command(flags))
	err = errors.Join(err, l.close())
	if *page == "" {
		fmt.Fprint(out, text)
	} else {
		err = errors.Join(err, l.write(*page, text))
	}
	return errors.Join(err, l.complaints())
}

func (s *settings) choose(only string, quick bool) error {
	system, exp, ok := strings.Cut(only, "/")
	if !ok {
		return fmt.Errorf("-only %s: SYSTEM/EXPERIMENT", only)
	}
	whole := func(pattern string) (*regexp.Regexp, error) { return regexp.Compile("^(?:" + pattern + ")$") }
	sre, err := whole(system)
	if err != nil {
		return err
	}
	ere, err := whole(exp)
	if err != nil {
		return err
	}
	ordinary := system == ".*"
	for _, sys := range systems {
		if sre.MatchString(sys.Name) && !(sys.Checks && ordinary) && (!quick || slices.Contains(quickSystems, sys.Name)) {
			s.Systems = append(s.Systems, sys)
		}
	}
	slices.SortStableFunc(s.Systems, func(a, b *System) int { return place(a) - place(b) })
	for _, e := range inOrder() {
		if ere.MatchString(e.Name) && (!e.Long || quick || exp == e.Name) && (!quick || slices.Contains(quickExperiments, e.Name)) {
			s.Experiments = append(s.Experiments, e)
		}
	}
	if len(s.Systems) == 0 || len(s.Experiments) == 0 {
		return fmt.Errorf("-only %s: there are %d such systems and %d such experiments", only, len(s.Systems), len(s.Experiments))
	}
	return nil
}

var (
	quickSystems     = []string{"zklock", "zk-naive", "redis-px"}
	quickExperiments = []string{"crash", "cut", "stop", "herd-10"}
)

// place returns the position of a system on the page: ordered by its servers, and then by its file.
func place(s *System) int {
	return slices.IndexFunc([]string{"zookeeper", "redis", "postgres", "mariadb", "etcd", "consul", ""}, func(kind string) bool {
		return strings.HasPrefix(s.Server.Name, kind)
	})
}

// command formats the command that repeats the run, without the path of the page.
func command(flags *flag.FlagSet) string {
	text := "go run ."
	flags.Visit(func(f *flag.Flag) {
		switch v := f.Value.String(); {
		case f.Name == "out":
		case v == "true":
			text += " -" + f.Name
		default:
			text += " -" + f.Name + " '" + v + "'"
		}
	})
	return text
}

// complaints returns what makes the run a failure: trials that could not run and, if everything is
// required, missing programs.
func (l *lab) complaints() error {
	var errs []error
	said := map[string]bool{}
	for _, r := range l.sorted() {
		for _, f := range r.Failed {
			errs = append(errs, fmt.Errorf("%s, %s: %s", r.System, r.Experiment, f))
		}
		if r.Missing && !said[r.Skipped] {
			said[r.Skipped] = true
			if l.Require {
				errs = append(errs, errors.New(r.Skipped))
			} else {
				fmt.Fprintln(l.Log, "not covered:", r.Skipped)
			}
		}
	}
	return errors.Join(errs...)
}

func (l *lab) sorted() (rs []*Result) {
	for _, e := range l.Experiments {
		for _, s := range l.Systems {
			for _, r := range e.rows(s) {
				if res := l.results[job{e: e, row: r}.key()]; res != nil {
					rs = append(rs, res)
				}
			}
		}
	}
	return rs
}

// write writes the page, and the pictures as SVG beside it.
func (l *lab) write(path, text string) error {
	stem := strings.TrimSuffix(path, filepath.Ext(path))
	errs := []error{os.WriteFile(path, []byte(text), 0o644), os.MkdirAll(stem, 0o755)}
	for name, svg := range l.pictures() {
		errs = append(errs, os.WriteFile(filepath.Join(stem, name+".svg"), []byte(svg), 0o644))
	}
	return errors.Join(errs...)
}
