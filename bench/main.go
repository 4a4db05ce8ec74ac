// The command bench runs the same workloads with zklock and with other locks on ZooKeeper, on a
// server that it starts or on an ensemble, and prints how long each took. For read/write locks and
// elections it also runs etcd's recipes, on etcd's own server. Within each round the rivals
// alternate, so that a temporary slowdown of the machine affects all of them.
//
//	go run .                        # everything, in more than an hour; prints the table
//	go run . -quick                 # each once and shortly: to check it, not for its times
//	go run . -only 'contend|cycle' -rivals 'raw|zk.Lock|zklock' -out results/near.md
//	go run . -distance 2ms          # as in a cluster, where a round trip takes time
//	go run . -busy 8                # while eight other processes compute
//	go run . -beside v1.2.0         # an older revision is one more rival
package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/zklock/zklock/internal/zkserver"
)

var workloads = []workload{
	{Name: "cycle", Sessions: 1, Threads: 1, Locks: 1},
	{Name: "contend 8", Sessions: 8, Threads: 1, Locks: 1},
	{Name: "contend 8, hold of 1 ms", Sessions: 8, Threads: 1, Locks: 1, Hold: time.Millisecond},
	{Name: "threads 32", Sessions: 1, Threads: 32, Locks: 1},
	{Name: "many 1,000", Sessions: 1, Threads: 16, Locks: 1000},
	{Name: "8 locks together", Sessions: 1, Threads: 1, Locks: 1, Several: 8},
	{Name: "drain 100, interleaved", Sessions: 10, Drain: 100, Burst: 1},
	{Name: "drain 1,000, in bursts", Sessions: 10, Drain: 1000, Burst: 100},
	{Name: "drain 1,000, interleaved", Sessions: 10, Drain: 1000, Burst: 1},
	{Name: "waiters 15,000", Sessions: 60, Waiters: 15_000},
	{Name: "readers, 32 of one session", Sessions: 1, Threads: 32, Locks: 1, Reads: 100},
	{Name: "90 % reads", Sessions: 8, Threads: 4, Locks: 1, Reads: 90},
	{Name: "semaphore of 4", Sessions: 8, Threads: 4, Locks: 1, Permits: 4},
	{Name: "election, each leads for 1 ms", Sessions: 8, Threads: 1, Locks: 1, Hold: time.Millisecond, Election: true},
}

type rival struct {
	name    string
	fits    func(w workload) bool
	measure func(w workload, path string, d time.Duration) (result, error)
}

var (
	quick    = flag.Bool("quick", false, "each workload once, for 200 ms, and the small ones only: for the checks")
	rounds   = flag.Int("rounds", 5, "how often each rival has each workload")
	each     = flag.Duration("for", 3*time.Second, "how long a workload lasts")
	only     = flag.String("only", "", "workloads, a regular expression")
	which    = flag.String("rivals", "", "rivals, a regular expression")
	out      = flag.String("out", "", "a file for the table")
	profile  = flag.String("profile", "", "a directory for the profiles, CPU and allocations, of a rival in Go: name one rival and one workload")
	beside   = flag.String("beside", "", "a revision of this repository that is one more rival")
	busy     = flag.Int("busy", 0, "so many other processes compute all the time")
	fsync    = flag.String("data", "", "the server's data directory, on a disk, and writes wait for it; by default a temporary directory, and they do not")
	ensemble = flag.Int("servers", 1, "how many servers: an ensemble of so many")
	distance = flag.Duration("distance", 0, "a round trip to the servers takes so much longer, for all rivals: 2ms")
)

func main() {
	flag.Parse()
	if *quick {
		*rounds, *each = 1, 200*time.Millisecond
	}
	var err error
	switch flag.Arg(0) {
	case "client":
		err = client(flag.Arg(1))
	case "compute":
		go func() {
			for sum := sha256.Sum256(nil); ; sum = sha256.Sum256(sum[:]) {
			}
		}()
		_, err = io.Copy(io.Discard, os.Stdin) // until the parent ends
	default:
		err = run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	opts := []zkserver.Option{zkserver.TickTime(2 * time.Second), zkserver.Line("maxClientCnxns=0")}
	if *fsync != "" {
		opts = append(opts, zkserver.DataDir(*fsync), zkserver.Property("zookeeper.forceSync", "yes"))
	}
	// The short form is one of the tests. If this machine lacks a program, it is reported, and is a
	// failure only if everything is required.
	lacks := func(what string, err error) error {
		if !*quick || os.Getenv("ZKLOCK_REQUIRE") == "1" {
			return fmt.Errorf("%s: %w; scripts/setup installs it", what, err)
		}
		fmt.Printf("not covered: %s: %v\n", what, err)
		return nil
	}
	loads, _ := os.ReadFile("/proc/loadavg") // elsewhere than on Linux: none
	load, _, _ := strings.Cut(string(loads), " ")
	// A test's server compiles less and has 128 MB. This variable comes after the command line.
	os.Setenv("_JAVA_OPTIONS", "-Xmx4g -XX:TieredStopAtLevel=4")
	near, pids, stop, err := startServers(*ensemble, zkserver.NewConfig(opts...))
	os.Unsetenv("_JAVA_OPTIONS")
	if errors.Is(err, zkserver.ErrNotInstalled) {
		return lacks("the locks side by side", err)
	}
	if err != nil {
		return err
	}
	defer stop()
	version, err := zkserver.Version(strings.Split(near, ",")[0])
	if err != nil {
		return err
	}
	if *ensemble > 1 {
		version += fmt.Sprintf(", %d servers", *ensemble)
	}
	if *fsync != "" {
		version += ", writes wait for the disk"
	}
	addr, stopProxies, err := away(near, *distance)
	if err != nil {
		return err
	}
	defer stopProxies()
	if *distance > 0 {
		version += fmt.Sprintf(", %v away", *distance)
	}
	if *busy > 0 {
		version += fmt.Sprintf(", %d other processes compute", *busy)
	}
	if err := openAdmin(near); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	in := func(bench, rival, addr, near string, at servers) func(workload, string, time.Duration) (result, error) {
		return func(w workload, path string, d time.Duration) (result, error) {
			return job{rival, addr, near, path, w, d, at, *profile}.start(bench)
		}
	}
	at := servers{strings.Split(near, ","), pids}
	onZooKeeper := func(bench, rival string) func(workload, string, time.Duration) (result, error) {
		return in(bench, rival, addr, near, at)
	}
	all := func(workload) bool { return true }
	short := func(w workload) bool { return w.Waiters == 0 && w.Drain <= 1000 }
	rivals := []rival{
		{"raw", func(w workload) bool { return w.Sessions == 1 && w.Threads < 32 && !w.isRecipe() }, onZooKeeper(self, "raw")},
		{"zk.Lock", func(w workload) bool { return !w.isRecipe() }, onZooKeeper(self, "zk.Lock")},
	}
	curator, err := startCurator(dir, addr)
	if err == nil {
		defer curator.close()
		curator.servers = at
		rivals = append(rivals, rival{"Curator", short, curator.measure})
	} else if err := lacks("Curator", err); err != nil {
		return err
	}
	kazoo, err := startKazoo(addr)
	if err == nil {
		defer kazoo.close()
		kazoo.servers = at
		// A reader of kazoo 2.8 waits for the last writer in the queue, so two of them may wait for
		// each other indefinitely.
		rivals = append(rivals, rival{"kazoo", func(w workload) bool { return short(w) && w.Drain <= 100 && w.Reads%100 == 0 && w.Several == 0 }, kazoo.measure})
	} else if err := lacks("kazoo", err); err != nil {
		return err
	}
	etcdAddr, pid, stopEtcd, err := startEtcd(*fsync)
	if err == nil {
		defer stopEtcd()
		far, stopProxy, err := away(etcdAddr, *distance)
		if err != nil {
			return err
		}
		defer stopProxy()
		fits := func(w workload) bool { return short(w) && w.Permits == 0 && w.Threads*w.Locks <= 1000 }
		rivals = append(rivals, rival{"etcd", fits, in(self, "etcd", far, etcdAddr, servers{Pids: []int{pid}})})
	} else if !errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("etcd: %w", err)
	} else {
		fmt.Println("not covered: etcd:", err)
	}
	rivals = append(rivals, rival{"zklock", all, onZooKeeper(self, "zklock")})
	if hasAsync {
		fits := func(w workload) bool { return short(w) && !w.isRecipe() && w.Several == 0 }
		rivals = append(rivals, rival{"zklock, AsyncRelease", fits, onZooKeeper(self, "zklock, AsyncRelease")})
	}
	if *beside != "" {
		old, err := buildBeside(dir, *beside)
		if err != nil {
			return err
		}
		rivals = append(rivals, rival{"zklock " + *beside, all, onZooKeeper(old, "zklock")})
	}
	if *which != "" {
		re, err := regexp.Compile(*which)
		if err != nil {
			return err
		}
		rivals = slices.DeleteFunc(rivals, func(r rival) bool { return !re.MatchString(r.name) })
	}
	chosen := slices.Clone(workloads)
	if *only != "" {
		re, err := regexp.Compile(*only)
		if err != nil {
			return err
		}
		chosen = slices.DeleteFunc(chosen, func(w workload) bool { return !re.MatchString(w.Name) })
	}
	if *quick {
		for i := range chosen {
			chosen[i].Waiters /= 50
		}
		chosen = slices.DeleteFunc(chosen, func(w workload) bool {
			return w.Drain > 100 || w.Locks > 100 || w.Sessions > 10 && w.Waiters == 0
		})
	}
	stopComputing, err := startComputing(self, *busy)
	if err != nil {
		return err
	}
	defer stopComputing()

	results := map[string]map[string][]result{}
	var failed error
	overlaps := 0
	for round := range *rounds + 1 { // the first round warms up, and does not count
		for k, w := range chosen {
			for i := range rivals {
				r := rivals[(i+round)%len(rivals)]
				if !r.fits(w) || round == 0 && w.Drain+w.Waiters > 100 || round > 1 && w.Drain+w.Waiters > 1000 {
					continue
				}
				d := *each
				if round == 0 {
					d = *each / 3
				}
				path := fmt.Sprintf("/bench-%d-%d-%d", k, round, i)
				got, err := r.measure(w, path, d)
				for w.Waiters > 0 && queued(path+"-0") > 0 { // until the sessions of a rival that is not drained have expired
					time.Sleep(pause)
				}
				if err != nil { // the others go on
					failed = errors.Join(failed, fmt.Errorf("%s, %s: %w", w.Name, r.name, err))
					continue
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
	rivals = slices.DeleteFunc(rivals, func(r rival) bool {
		return !slices.ContainsFunc(chosen, func(w workload) bool { return len(results[w.Name][r.name]) > 0 })
	})
	page := table(chosen, rivals, results, fmt.Sprintf("ZooKeeper %s, %s, %d processors, %d rounds of %v, load average before %s", version, runtime.Version(), runtime.NumCPU(), *rounds, *each, load))
	fmt.Print(page)
	if *out != "" {
		if err := os.WriteFile(*out, []byte(page), 0o644); err != nil {
			return err
		}
	}
	if fmt.Println(overlaps, "times more were in than may"); overlaps > 0 {
		failed = errors.Join(failed, errors.New("exclusion was broken"))
	}
	return failed
}

// startServers starts a server, or an ensemble, and returns the addresses, separated by commas.
func startServers(n int, cfg zkserver.Config) (addrs string, pids []int, stop func() error, err error) {
	if n == 1 {
		srv, err := zkserver.Start(cfg)
		if err != nil {
			return "", nil, nil, err
		}
		return srv.Addr(), []int{srv.Pid()}, srv.Close, nil
	}
	all, err := zkserver.StartEnsemble(n, cfg)
	if err != nil {
		return "", nil, nil, err
	}
	for _, srv := range all.Servers() {
		pids = append(pids, srv.Pid())
	}
	return all.ConnectString(), pids, all.Close, nil
}

// startComputing starts processes that use all of the processors that they get.
func startComputing(self string, n int) (stop func(), err error) {
	var all []*exec.Cmd
	stop = func() {
		for _, c := range all {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}
	for range n {
		c := exec.Command(self, "compute")
		_, err := c.StdinPipe() // it ends with this process
		if err = errors.Join(err, c.Start()); err != nil {
			stop()
			return nil, err
		}
		all = append(all, c)
	}
	return stop, nil
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

// figure returns the figure that is shown for a workload, and its unit.
func figure(w workload) (unit string, of func(result) float64) {
	switch {
	case w.Waiters > 0:
		return " ms to join", func(r result) float64 { return float64(r.Took.Milliseconds()) }
	case w.Hold > 0:
		return " µs between holds", func(r result) float64 { return float64(r.Between.Nanoseconds()) / 1000 }
	case w.Drain > 0, w.Sessions*w.Threads == 1:
		return " µs", micros
	}
	return "/s", result.perSecond
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
		unit, of := figure(w)
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
			if ratios += " |"; r.name != "zklock" && len(mine) > 0 {
				own, _, _ := spread(mine, of)
				ratios = fmt.Sprintf("%s %.2f |", strings.TrimSuffix(ratios, "|"), own/median)
			}
		}
		b.WriteString(row + "\n" + ratios + "\n")
	}
	b.WriteString("\n| for each acquisition: CPU of the client + of the servers; requests + events; allocations of the client |")
	for _, r := range rivals {
		fmt.Fprintf(&b, " %s |", r.name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(rivals)) + "\n")
	for _, w := range ws {
		row := "| " + w.Name + " |"
		for _, r := range rivals {
			row += costs(results[w.Name][r.name]) + " |"
		}
		b.WriteString(row + "\n")
	}
	return b.String()
}

// costs prints the medians of the costs that are known.
func costs(rs []result) string {
	if len(rs) == 0 || rs[0].CPU == 0 {
		return ""
	}
	median := func(of func(result) float64) float64 {
		m, _, _ := spread(rs, of)
		return m
	}
	s := fmt.Sprintf(" %.0f", median(func(r result) float64 { return float64(r.CPU.Nanoseconds()) / 1000 }))
	if server := median(func(r result) float64 { return float64(r.Server.Nanoseconds()) / 1000 }); server > 0 {
		s += fmt.Sprintf(" + %.0f", server)
	}
	s += " µs"
	if requests := median(func(r result) float64 { return r.Requests }); requests > 0 {
		s += fmt.Sprintf("; %.1f + %.1f", requests, median(func(r result) float64 { return r.Events }))
	}
	if mallocs := median(func(r result) float64 { return r.Mallocs }); mallocs > 0 {
		s += fmt.Sprintf("; %.0f", mallocs)
	}
	if bytes := median(func(r result) float64 { return r.Bytes }); bytes > 0 {
		s += fmt.Sprintf("; %.0f bytes", bytes)
	}
	if drain := median(func(r result) float64 { return float64(r.Drain.Microseconds()) }); drain > 0 {
		s += fmt.Sprintf("; drained in %.0f µs each", drain)
	}
	return s
}
