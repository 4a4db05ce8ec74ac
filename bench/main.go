// The command bench runs the same workloads with zklock and with other locks on ZooKeeper, on a
// server that it starts or on an ensemble, and prints how long each took. For read/write locks and
// elections it also runs etcd's recipes, on etcd's own server. Within each round the rivals
// alternate, so that a temporary slowdown of the machine affects all of them.
//
//	go run .                        # everything, in some twenty minutes; prints the table
//	go run . -quick                 # each once and shortly: to check it, not for its times
//	go run . -only 'contend|cycle' -rivals 'floor|zk.Lock|zklock' -out results/single.md
//	go run . -distance 2ms          # as in a cluster, where a round trip takes time
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zklock/zklock/internal/zkserver"
)

var workloads = []workload{
	{Name: "cycle", Sessions: 1, Threads: 1, Locks: 1},
	{Name: "2 in turn, neither waits", Sessions: 2, Threads: 1, Locks: 1, Turns: 1},
	{Name: "2, one busy and one rare", Sessions: 2, Threads: 1, Locks: 1, Turns: 5},
	{Name: "contend 2", Sessions: 2, Threads: 1, Locks: 1},
	{Name: "contend 8", Sessions: 8, Threads: 1, Locks: 1},
	{Name: "contend 64", Sessions: 64, Threads: 1, Locks: 1},
	{Name: "contend 8, hold of 1 ms", Sessions: 8, Threads: 1, Locks: 1, Hold: time.Millisecond},
	{Name: "threads 32", Sessions: 1, Threads: 32, Locks: 1},
	{Name: "many 1,000", Sessions: 1, Threads: 16, Locks: 1000},
	{Name: "drain 10", Sessions: 10, Drain: 10, Burst: 1},
	{Name: "drain 100, in bursts", Sessions: 10, Drain: 100, Burst: 10},
	{Name: "drain 100, interleaved", Sessions: 10, Drain: 100, Burst: 1},
	{Name: "drain 1,000, in bursts", Sessions: 10, Drain: 1000, Burst: 100},
	{Name: "drain 1,000, interleaved", Sessions: 10, Drain: 1000, Burst: 1},
	{Name: "drain 5,000, interleaved", Sessions: 10, Drain: 5000, Burst: 1},
	{Name: "waiters 10,000", Sessions: 10, Locks: 100, Waiters: 10_000},
	{Name: "holding 1,000", Sessions: 1000, Holding: true},
	{Name: "connect", Sessions: 1, Threads: 1, Locks: 1, Connect: true},
	{Name: "take-over", Sessions: 1, TakeOver: true},
	{Name: "take-over, with a guard", Sessions: 1, TakeOver: true, Guard: true},
	{Name: "take-over by a restart, with a session file", Sessions: 1, TakeOver: true, File: true},
	{Name: "readers, 32 of one session", Sessions: 1, Threads: 32, Locks: 1, Reads: 100},
	{Name: "readers, 8 sessions", Sessions: 8, Threads: 1, Locks: 1, Reads: 100},
	{Name: "90 % reads", Sessions: 8, Threads: 4, Locks: 1, Reads: 90},
	{Name: "semaphore of 1", Sessions: 8, Threads: 4, Locks: 1, Permits: 1},
	{Name: "semaphore of 4", Sessions: 8, Threads: 4, Locks: 1, Permits: 4},
	{Name: "semaphore of 16", Sessions: 8, Threads: 4, Locks: 1, Permits: 16},
	{Name: "election, each leads for 1 ms", Sessions: 8, Threads: 1, Locks: 1, Hold: time.Millisecond, Election: true},
}

type rival struct {
	name    string
	fits    func(w workload) bool
	measure func(w workload, path string, d time.Duration) (result, error)
}

func main() {
	quick := flag.Bool("quick", false, "each workload once, for 200 ms, and the small ones only: for the checks")
	rounds := flag.Int("rounds", 5, "how often each rival has each workload")
	each := flag.Duration("for", 3*time.Second, "how long a workload lasts")
	only := flag.String("only", "", "workloads, a regular expression")
	which := flag.String("rivals", "", "rivals, a regular expression")
	out := flag.String("out", "", "a file for the table; the numbers go beside it as JSON, and a picture as SVG")
	profile := flag.String("profile", "", "a directory for profiles of this process, CPU and allocations: name one rival and one workload")
	fsync := flag.String("data", "", "the server's data directory, on a disk, and writes wait for it; by default a temporary directory, and they do not")
	servers := flag.Int("servers", 1, "how many servers: an ensemble of so many")
	distance := flag.Duration("distance", 0, "a round trip to the servers takes so much longer, for all rivals: 2ms")
	flag.Parse()
	if flag.Arg(0) == "hold" { // the holder of a take-over
		if err := holdOn(flag.Args()[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	if *quick {
		*rounds, *each = 1, 200*time.Millisecond
	}
	stop, err := startProfile(*profile)
	if err == nil {
		err = errors.Join(run(*quick, *rounds, *each, *only, *which, *out, *fsync, *servers, *distance), stop())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(quick bool, rounds int, each time.Duration, only, which, out, data string, servers int, distance time.Duration) error {
	var opts []zkserver.Option
	opts = append(opts, zkserver.TickTime(2*time.Second), zkserver.Line("maxClientCnxns=0"))
	if data != "" {
		opts = append(opts, zkserver.DataDir(data), zkserver.Property("zookeeper.forceSync", "yes"))
	}
	// The short form is one of the tests. If this machine lacks a program, it is reported, and is a
	// failure only if everything is required.
	lacks := func(what string, err error) error {
		if !quick || os.Getenv("ZKLOCK_REQUIRE") == "1" {
			return fmt.Errorf("%s: %w; scripts/setup installs it", what, err)
		}
		fmt.Printf("not covered: %s: %v\n", what, err)
		return nil
	}
	near, version, stop, err := startServers(servers, zkserver.NewConfig(opts...))
	if errors.Is(err, zkserver.ErrNotInstalled) {
		return lacks("the locks side by side", err)
	}
	if err != nil {
		return err
	}
	defer stop()
	if servers > 1 {
		version += fmt.Sprintf(", %d servers", servers)
	}
	if data != "" {
		version += ", writes wait for the disk"
	}
	addr, stopProxies, err := away(near, distance)
	if err != nil {
		return err
	}
	defer stopProxies()
	if distance > 0 {
		version += fmt.Sprintf(", %v away", distance)
	}
	admin, err := openClient(near)
	if err != nil {
		return err
	}
	defer admin.Close()
	queued = func(path string) int {
		_, stat, err := admin.Exists(path)
		if err != nil || stat == nil {
			return 0
		}
		return int(stat.NumChildren)
	}

	received = func() (int, error) {
		sum := 0
		for _, one := range strings.Split(near, ",") {
			all, err := zkserver.Mntr(one)
			if err != nil {
				return 0, err
			}
			n, err := strconv.Atoi(all["zk_packets_received"])
			if err != nil {
				return 0, err
			}
			sum += n
		}
		return sum, nil
	}

	in := func(open func(string) (session, error)) func(workload, string, time.Duration) (result, error) {
		return func(w workload, path string, d time.Duration) (result, error) {
			if w.File {
				return startAgain(addr, path)
			}
			if w.TakeOver {
				return takeOver(open, w, addr, path)
			}
			return measure(func() (session, error) { return open(addr) }, w, path, d)
		}
	}
	all := func(workload) bool { return true }
	here := func(w workload) bool {
		return !w.Connect && w.Waiters == 0 && !w.Holding && !w.TakeOver && w.Turns == 0
	}
	rivals := []rival{
		{"floor", func(w workload) bool {
			return w.Drain+w.Waiters == 0 && !w.Holding && !w.TakeOver && !w.isRecipe() && w.Sessions == 1 && w.Threads < 32
		}, in(openFloor)},
		{"zk.Lock", func(w workload) bool { return !w.isRecipe() && !w.Guard && !w.File }, in(openGoZookeeper)},
	}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	curator, err := startCurator(dir, addr)
	if err == nil {
		defer curator.close()
		rivals = append(rivals, rival{"Curator", func(w workload) bool { return here(w) && w.Drain <= 1000 }, curator.measure})
	} else if err := lacks("Curator", err); err != nil {
		return err
	}
	kazoo, err := startKazoo(addr)
	if err == nil {
		defer kazoo.close()
		// A reader of kazoo 2.8 waits for the last writer in the queue, so two of them may wait for
		// each other indefinitely.
		rivals = append(rivals, rival{"kazoo", func(w workload) bool { return here(w) && w.Drain <= 100 && w.Reads%100 == 0 }, kazoo.measure})
	} else if err := lacks("kazoo", err); err != nil {
		return err
	}
	etcdAddr, stopEtcd, err := startEtcd(data)
	if err == nil {
		defer stopEtcd()
		etcdAddr, stopProxy, err := away(strings.TrimPrefix(etcdAddr, "http://"), distance)
		if err != nil {
			return err
		}
		defer stopProxy()
		rivals = append(rivals, rival{"etcd", func(w workload) bool { return w.Reads > 0 || w.Election }, func(w workload, path string, d time.Duration) (result, error) {
			return measure(func() (session, error) { return openEtcd(etcdAddr) }, w, path, d)
		}})
	} else if !errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("etcd: %w", err)
	} else {
		fmt.Println("not covered: etcd:", err)
	}
	rivals = append(rivals, rival{"zklock", all, in(func(addr string) (session, error) { return openOurs(addr) })},
		rival{"zklock, AsyncRelease", func(w workload) bool { return here(w) && w.Drain == 0 && !w.isRecipe() }, in(openAsync)})
	if which != "" {
		re, err := regexp.Compile(which)
		if err != nil {
			return err
		}
		rivals = slices.DeleteFunc(rivals, func(r rival) bool { return !re.MatchString(r.name) })
	}
	chosen := slices.Clone(workloads)
	if only != "" {
		re, err := regexp.Compile(only)
		if err != nil {
			return err
		}
		chosen = slices.DeleteFunc(chosen, func(w workload) bool { return !re.MatchString(w.Name) })
	}
	if quick {
		chosen = slices.DeleteFunc(chosen, func(w workload) bool {
			return w.Drain > 100 || w.Waiters > 0 || w.Holding || w.TakeOver || w.Locks > 100 || w.Sessions > 10
		})
	}

	results := map[string]map[string][]result{}
	overlaps := 0
	for round := range rounds + 1 { // the first round warms up, and does not count
		for _, w := range chosen {
			for i := range rivals {
				r := rivals[(i+round)%len(rivals)]
				if !r.fits(w) || round == 0 && (w.Drain+w.Waiters > 100 || w.Holding || w.TakeOver) || round > 1 && (w.Drain+w.Waiters > 1000 || w.Holding) || round > 2 && w.TakeOver && !w.Guard && !w.File {
					continue
				}
				d := each
				if round == 0 {
					d = each / 3
				}
				path := fmt.Sprintf("/bench-%s-%d-%s", strings.Map(letter, r.name), round, strings.Map(letter, w.Name))
				got, err := r.measure(w, path, d)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", w.Name, r.name, err)
				}
				overlaps += got.Overlaps
				if round > 0 {
					if results[w.Name] == nil {
						results[w.Name] = map[string][]result{}
					}
					results[w.Name][r.name] = append(results[w.Name][r.name], got)
				}
				fmt.Fprintf(os.Stderr, "%d %s, %s: %d in %v, p50 %v\n", round, w.Name, r.name, got.Ops, got.Took.Round(time.Millisecond), got.P50)
			}
		}
	}
	page := table(chosen, rivals, results, fmt.Sprintf("ZooKeeper %s, %s, %d processors, %d rounds", version, runtime.Version(), runtime.NumCPU(), rounds))
	fmt.Print(page)
	if out != "" {
		numbers, err := json.MarshalIndent(results, "", " ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(strings.TrimSuffix(out, filepath.Ext(out))+".json", numbers, 0o644); err != nil {
			return err
		}
		if err := os.WriteFile(out, []byte(page), 0o644); err != nil {
			return err
		}
		if err := os.WriteFile(strings.TrimSuffix(out, filepath.Ext(out))+".svg", []byte(picture(chosen, rivals, results)), 0o644); err != nil {
			return err
		}
	}
	if overlaps > 0 {
		return fmt.Errorf("%d times more were in than may", overlaps)
	}
	fmt.Println("no more were ever in than may")
	return nil
}

// startServers starts a server, or an ensemble, and returns the addresses, separated by commas.
func startServers(n int, cfg zkserver.Config) (addrs, version string, stop func() error, err error) {
	if n == 1 {
		srv, err := zkserver.Start(cfg)
		if err != nil {
			return "", "", nil, err
		}
		version, err := srv.Version()
		if err != nil {
			return "", "", nil, errors.Join(err, srv.Close())
		}
		return srv.Addr(), version, srv.Close, nil
	}
	all, err := zkserver.StartEnsemble(n, cfg)
	if err != nil {
		return "", "", nil, err
	}
	version, err = all.Servers()[0].Version()
	if err != nil {
		return "", "", nil, errors.Join(err, all.Close())
	}
	return all.ConnectString(), version, all.Close, nil
}

// startProfile records a CPU profile until stop is called. stop also writes the allocations.
func startProfile(dir string) (stop func() error, err error) {
	if dir == "" {
		return func() error { return nil }, nil
	}
	cpu, err := os.Create(filepath.Join(dir, "cpu.pprof"))
	if err != nil {
		return nil, err
	}
	runtime.MemProfileRate = 1 << 10
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return nil, err
	}
	return func() error {
		pprof.StopCPUProfile()
		mem, err := os.Create(filepath.Join(dir, "allocs.pprof"))
		if err != nil {
			return err
		}
		return errors.Join(pprof.Lookup("allocs").WriteTo(mem, 0), mem.Close(), cpu.Close())
	}, nil
}

func letter(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
		return r
	}
	return '-'
}

// spread returns the median of some figures, the least and the greatest.
func spread(rs []result, of func(result) float64) (median, least, most float64) {
	var fs []float64
	for _, r := range rs {
		fs = append(fs, of(r))
	}
	slices.Sort(fs)
	return fs[len(fs)/2], fs[0], fs[len(fs)-1]
}

func micros(r result) float64 { return float64(r.P50.Nanoseconds()) / 1000 }

// figure returns the figure that is shown for a workload, and its unit. Of a time, less is better.
func figure(w workload) (unit string, of func(result) float64, isTime bool) {
	switch {
	case w.Waiters > 0:
		return " bytes", func(r result) float64 { return r.Bytes }, false
	case w.Holding:
		return " requests/s", func(r result) float64 { return r.Requests }, false
	case w.Guard, w.File:
		return " ms after kill -9", func(r result) float64 { return float64(r.P50.Milliseconds()) }, true
	case w.TakeOver:
		return " ms after the session timeout", func(r result) float64 { return float64(r.P50.Milliseconds()) }, true
	case w.Hold > 0:
		return " µs between holds", func(r result) float64 { return float64(r.Between.Nanoseconds()) / 1000 }, true
	case w.Drain+w.Turns > 0, w.Connect, w.Sessions*w.Threads == 1:
		return " µs", micros, true
	}
	return "/s", result.perSecond, false
}

// table prints medians with their spread, and the ratio of zklock's to each rival's.
func table(ws []workload, rivals []rival, results map[string]map[string][]result, about string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s. Medians, with the least and the most; below each, how often zklock's is that of the rival (for a time less is better, for a rate more).\n\n| workload |", about)
	for _, r := range rivals {
		fmt.Fprintf(&b, " %s |", r.name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(rivals)) + "\n")
	for _, w := range ws {
		unit, of, _ := figure(w)
		mine := results[w.Name]["zklock"]
		row, ratios := "| "+w.Name+" |", "| |"
		for _, r := range rivals {
			got := results[w.Name][r.name]
			if len(got) == 0 {
				row, ratios = row+" |", ratios+" |"
				continue
			}
			median, least, most := spread(got, of)
			row += fmt.Sprintf(" %.0f%s (%.0f–%.0f) |", median, unit, least, most)
			if ratios += " |"; r.name != "zklock" && len(mine) > 0 && !w.TakeOver { // its time depends on the server more than on the lock
				own, _, _ := spread(mine, of)
				ratios = fmt.Sprintf("%s %.2f |", strings.TrimSuffix(ratios, "|"), own/median)
			}
		}
		b.WriteString(row + "\n" + ratios + "\n")
	}
	b.WriteString("\n| for each acquisition |")
	for _, r := range rivals {
		fmt.Fprintf(&b, " %s |", r.name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(rivals)) + "\n")
	for _, w := range ws {
		row := "| " + w.Name + ": CPU of the client, allocations |"
		for _, r := range rivals {
			got := results[w.Name][r.name]
			if len(got) > 0 && w.Waiters > 0 {
				row += fmt.Sprintf(" %.1f goroutines |", got[0].Routines)
				continue
			}
			if len(got) == 0 || got[0].CPU == 0 {
				row += " |"
				continue
			}
			cpu, _, _ := spread(got, func(r result) float64 { return float64(r.CPU.Nanoseconds()) / 1000 })
			row += fmt.Sprintf(" %.0f µs", cpu)
			if mallocs, _, _ := spread(got, func(r result) float64 { return r.Mallocs }); mallocs > 0 {
				row += fmt.Sprintf(", %.0f", mallocs)
			}
			row += " |"
		}
		b.WriteString(row + "\n")
	}
	return b.String()
}
