// Package demo shows the lock at work: three `zklock run` contend for one job, the holder is killed, the next one takes
// over with a larger token, and the file that the jobs wrote shows that no two of them overlapped.
package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Server is a ZooKeeper to run against.
type Server interface {
	ConnectString() string
	Close() error
}

// Config says what to run.
type Config struct {
	Zklock string // the binary
	Start  func() (Server, error)
	Out    io.Writer
}

// A takeover after a SIGKILL takes the session timeout and up to a tick of the server. Two ticks of half a second are
// the leader ping. With these, a host may be busy for two seconds before a holder has to give up.
const (
	sessionTimeout = 8 * time.Second
	leaderPing     = time.Second
	killAfter      = 500 * time.Millisecond
	lockPath       = "/demo/job"
	atMost         = 55 * time.Second
	linesToKill    = 6 // how much of the first job is done when its zklock is killed
)

// job appends to the ledger, for three seconds.
const job = `
say() { echo "$CONTENDER $ZKLOCK_TOKEN $1" >>"$LEDGER"; }
say start
i=0; while [ $i -lt 30 ]; do sleep 0.1; say works; i=$((i+1)); done
say end
`

type demo struct {
	Config
	began  time.Time
	ledger string

	mu struct {
		sync.Mutex
		waiting map[string]bool
	}
	out sync.Mutex
}

type contender struct {
	name string
	cmd  *exec.Cmd
	done chan error
}

// Run runs the demo and returns an error if it did not go as promised.
func Run(ctx context.Context, c Config) error {
	ctx, cancel := context.WithTimeoutCause(ctx, atMost, fmt.Errorf("not done after %v", atMost))
	defer cancel()
	dir, err := os.MkdirTemp("", "zklock-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	d := &demo{Config: c, began: time.Now(), ledger: filepath.Join(dir, "ledger")}
	d.mu.waiting = make(map[string]bool)

	srv, err := c.Start()
	if err != nil {
		return fmt.Errorf("starting a ZooKeeper: %w", err)
	}
	defer srv.Close()
	d.say("", "ZooKeeper serves on %s", srv.ConnectString())
	return d.run(ctx, srv.ConnectString())
}

// say prints one line of the timeline.
func (d *demo) say(who, format string, args ...any) {
	d.out.Lock()
	defer d.out.Unlock()
	fmt.Fprintf(d.Out, "%6.2fs  %-1s  %s\n", time.Since(d.began).Seconds(), who, fmt.Sprintf(format, args...))
}

func (d *demo) run(ctx context.Context, servers string) error {
	contenders := make(map[string]*contender)
	defer func() {
		for _, c := range contenders {
			_ = c.cmd.Process.Kill()
			<-c.done
		}
	}()
	for _, name := range []string{"A", "B", "C"} {
		c, err := d.contend(servers, name)
		if err != nil {
			return err
		}
		contenders[name] = c
	}

	// The holder is at work, and the two others wait: kill the holder.
	var first turn
	if err := d.until(ctx, "one works and two wait", func(ts []turn) bool {
		if len(ts) > 0 {
			first = ts[len(ts)-1]
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		waiting := 0
		for name, w := range d.mu.waiting {
			if w && name != first.who {
				waiting++
			}
		}
		return waiting == 2 && first.lines >= linesToKill && !first.ended
	}); err != nil {
		return err
	}
	victim := contenders[first.who]
	d.say(first.who, "SIGKILL to zklock, process %d, while its job runs", victim.cmd.Process.Pid)
	killed := time.Now()
	if err := victim.cmd.Process.Kill(); err != nil {
		return err
	}

	var all []turn
	taken := 0
	if err := d.until(ctx, "the two others have run", func(ts []turn) bool {
		all = ts
		for ; taken < len(ts)-1; taken++ {
			was, is := ts[taken], ts[taken+1]
			d.say(is.who, "starts the job: token %d > %d", is.token, was.token)
			if was.who == first.who {
				d.say(is.who, "took over %.1fs after the kill; the session timeout is %v", time.Since(killed).Seconds(), sessionTimeout)
			}
		}
		return len(ts) == 3 && ts[2].ended
	}); err != nil {
		return err
	}
	for name, c := range contenders {
		err := <-c.done
		c.done <- nil // for the clean-up
		if name != first.who && err != nil {
			return fmt.Errorf("contender %s: %w", name, err)
		}
	}
	return d.conclude(first, all)
}

// conclude reads the ledger once more, now that nobody writes to it, and prints the verdict.
func (d *demo) conclude(first turn, seen []turn) error {
	ledger, err := d.read()
	if err != nil {
		return err
	}
	ts, err := turns(ledger)
	if err != nil {
		return err
	}
	if len(ts) != len(seen) {
		return fmt.Errorf("%d turns in the ledger after %d", len(ts), len(seen))
	}
	fmt.Fprintf(d.Out, "\nwho  token  lines\n")
	for _, t := range ts {
		how := "ended"
		switch {
		case t.who == first.who && t.ended:
			return fmt.Errorf("the job of %s ran on to its end although its zklock was killed", t.who)
		case t.who == first.who:
			how = "killed with its zklock"
		case !t.ended:
			return fmt.Errorf("the job of %s did not end", t.who)
		}
		fmt.Fprintf(d.Out, "%-3s  %5d  %5d  %s\n", t.who, t.token, t.lines, how)
	}
	fmt.Fprintf(d.Out, "\nno overlap\n")
	return nil
}

// contend starts one `zklock run`.
func (d *demo) contend(servers, name string) (*contender, error) {
	cmd := exec.Command(d.Zklock, "run", "--session-timeout", sessionTimeout.String(), "--leader-ping", leaderPing.String(), "--kill-after", killAfter.String(),
		lockPath, "--", "sh", "-c", job)
	cmd.Env = append(os.Environ(), "ZKLOCK_SERVERS="+servers, "CONTENDER="+name, "LEDGER="+d.ledger)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &contender{name: name, cmd: cmd, done: make(chan error, 1)}
	d.say(name, "zklock run %s, process %d", lockPath, cmd.Process.Pid)
	go func() {
		lines := bufio.NewScanner(stderr) // until zklock and its guardian have both ended
		for lines.Scan() {
			d.heard(name, strings.TrimPrefix(lines.Text(), "zklock: "+lockPath+": "))
		}
		c.done <- cmd.Wait()
	}()
	return c, nil
}

// heard takes a line that a contender printed.
func (d *demo) heard(name, line string) {
	d.mu.Lock()
	d.mu.waiting[name] = line == "waiting"
	d.mu.Unlock()
	d.say(name, "%s", line)
}

func (d *demo) read() ([]entry, error) {
	b, err := os.ReadFile(d.ledger)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var es []entry
	lines := strings.Split(string(b), "\n")
	for _, line := range lines[:len(lines)-1] { // what follows the last line's end is half a line or nothing
		e, err := parseEntry(line)
		if err != nil {
			return nil, err
		}
		es = append(es, e)
	}
	return es, nil
}

// until waits for a condition on the ledger, and ends at the first overlap.
func (d *demo) until(ctx context.Context, what string, cond func([]turn) bool) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		es, err := d.read()
		if err != nil {
			return err
		}
		ts, err := turns(es)
		if err != nil {
			return err
		}
		if cond(ts) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, context.Cause(ctx))
		case <-tick.C:
		}
	}
}
