package main

// The client's process: one client of one lock. It reads commands, one per line, from standard
// input, and prints events, one per line, each with the time in microseconds since 1970. The Java
// and the Python client use the same protocol.
//
//	acquire MILLIS   → acquired TOKEN | busy | failed TEXT
//	                   TOKEN is a number, or - if the system has none; +SEQUENCER follows, as after
//	                   a write, if the hold is Sequenced
//	acquire MILLIS shared → acquired TOKEN shared | …
//	                   the same as a reader
//	downgrade        → downgrading, then downgraded | failed TEXT
//	                   a writer becomes a reader
//	release          → releasing, then released | unreleased TEXT
//	write            → write TOKEN looked | refrained
//	                   writes if it believes that it holds
//	blind            → write TOKEN blind
//	                   writes without looking: it has looked before
//	crowd N GAP HOLD → waiting, then for each I of N: grant I TOKEN and left I, and done
//	                   N more clients of the lock, which ask one after the other, GAP ms apart;
//	                   each holds for HOLD ms
//	cycle MILLIS     → cycled COUNT
//	                   acquires and releases for so long
//	clock SECONDS    → clocked MICROS
//	                   sets its wall clock ahead by so much from now on, except in the times that it
//	                   prints; only for a client of clockClient
//	quit             → (the process ends)
//
// It prints lost TEXT at any time, when it is notified that its hold has ended. The first line is
// ready.

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

type arguments struct {
	System  string
	Servers []string
	Lock    string
	Options Options
}

// words returns the arguments as every client takes them.
func (a arguments) words() []string {
	return []string{"-system", a.System, "-servers", strings.Join(a.Servers, ","), "-lock", a.Lock, "-name", a.Options.Client,
		"-ttl", fmt.Sprint(a.Options.TTL.Milliseconds()), "-size", fmt.Sprint(a.Options.Size),
		"-tick", fmt.Sprint(a.Options.Tick.Milliseconds())}
}

func clientMain(words []string) error {
	var a arguments
	flags := flag.NewFlagSet("lab client", flag.ContinueOnError)
	flags.StringVar(&a.System, "system", "", "its name")
	servers := flags.String("servers", "", "addresses, with commas")
	flags.StringVar(&a.Lock, "lock", "", "the lock's name")
	flags.StringVar(&a.Options.Client, "name", "", "the client's name")
	ttl := flags.Int64("ttl", 0, "the lock's time, ms")
	flags.IntVar(&a.Options.Size, "size", 1, "how many servers there are")
	tick := flags.Int64("tick", 0, "ZooKeeper's tick, ms")
	if err := flags.Parse(words); err != nil {
		return err
	}
	a.Servers, a.Options.TTL, a.Options.Tick = strings.Split(*servers, ","), time.Duration(*ttl)*time.Millisecond, time.Duration(*tick)*time.Millisecond
	sys, err := find(a.System)
	if err != nil {
		return err
	}
	c := &clientProcess{sys: sys, args: a, out: os.Stdout}
	return c.run(os.Stdin)
}

type clientProcess struct {
	sys  *System
	args arguments

	mu struct {
		sync.Mutex // held across the writing of a line, so that lines are in the order of their times
		hold       Hold
		token      string
		believes   bool
		ahead      time.Duration // how far its clock is ahead
	}
	out io.Writer
}

func (c *clientProcess) open(name string) (Lock, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	o := c.args.Options
	o.Client = name
	return c.sys.Open(ctx, c.args.Servers, c.args.Lock, o)
}

func (c *clientProcess) say(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sayLocked(format, args...)
}

func (c *clientProcess) sayLocked(format string, args ...any) {
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " ")
	fmt.Fprintf(c.out, "%d %s\n", time.Now().Add(-c.mu.ahead).UnixMicro(), text)
}

func (c *clientProcess) run(in io.Reader) error {
	lock, err := c.open(c.args.Options.Client)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	c.say("ready")
	lines, told := bufio.NewScanner(in), make(chan string)
	go func() {
		defer close(told)
		for lines.Scan() {
			if seconds, ok := strings.CutPrefix(lines.Text(), "clock "); ok {
				c.clock(seconds) // at once, even while it waits
				continue
			}
			told <- lines.Text()
		}
	}()
	for line := range told {
		var word string
		var n, gap, hold int
		_, _ = fmt.Sscan(line, &word, &n, &gap, &hold)
		switch word {
		case "acquire":
			c.acquire(lock, time.Duration(n)*time.Millisecond, strings.HasSuffix(line, " shared"))
		case "downgrade":
			c.downgrade()
		case "release":
			c.release()
		case "write":
			c.write()
		case "blind":
			c.mu.Lock()
			c.sayLocked("write %s blind", c.mu.token)
			c.mu.Unlock()
		case "crowd":
			c.crowd(n, time.Duration(gap)*time.Millisecond, time.Duration(hold)*time.Millisecond)
		case "cycle":
			c.cycle(lock, time.Duration(n)*time.Millisecond)
		case "quit":
			return lock.Close()
		default:
			return fmt.Errorf("told %q", line)
		}
	}
	return lines.Err()
}

// clock sets this process's clock, but not the times that it prints.
func (c *clientProcess) clock(seconds string) {
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || setClock == nil {
		panic("this client has no clock to set to " + seconds)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.ahead = time.Duration(n) * time.Second
	setClock(n)
	c.sayLocked("clocked %d", time.Now().UnixMicro())
}

func token(h Hold) string {
	text := "-"
	if t, ok := h.Token(); ok {
		text = fmt.Sprint(t)
	}
	if s, ok := h.(Sequenced); ok {
		text += " +" + s.Sequenced()
	}
	return text
}

func (c *clientProcess) acquire(lock Lock, d time.Duration, shared bool) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	take, how := lock.Acquire, ""
	if shared {
		take, how = lock.(Sharer).AcquireShared, " shared"
	}
	h, err := take(ctx)
	switch {
	case errors.Is(err, errBusy), errors.Is(err, context.DeadlineExceeded):
		c.say("busy")
		return
	case err != nil:
		c.say("failed %v", err)
		return
	}
	c.mu.Lock()
	c.mu.hold, c.mu.token, c.mu.believes = h, token(h), true
	c.sayLocked("acquired %s%s", c.mu.token, how)
	c.mu.Unlock()
	c.listens(h)
}

// downgrade counts the reader's hold from its beginning, because other readers may hold before it
// ends.
func (c *clientProcess) downgrade() {
	c.mu.Lock()
	writer := c.mu.hold
	if c.mu.believes {
		c.sayLocked("downgrading")
	}
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	reader, err := writer.(Downgrader).Share(ctx)
	if err != nil {
		c.say("failed %v", err)
		return
	}
	c.mu.Lock()
	c.mu.hold, c.mu.token = reader, token(reader)
	c.mu.Unlock()
	c.listens(reader)
	if err := writer.Release(ctx); err != nil {
		c.say("failed %v", err)
		return
	}
	c.say("downgraded")
}

func (c *clientProcess) listens(h Hold) {
	if _, looks := h.(Looker); looks || h.Lost() != nil {
		go c.listen(h)
	}
}

// listen prints that a hold has ended: at once if the system notifies the client, and otherwise
// when a look at the hold shows it, as for a user that looks every few milliseconds.
func (c *clientProcess) listen(h Hold) {
	var tick <-chan time.Time
	if h.Lost() == nil {
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		told := false
		select {
		case <-h.Lost():
			told = true
		case <-tick:
			told = look(h) != nil
		}
		c.mu.Lock()
		current := c.mu.hold == h && c.mu.believes
		if current && told {
			c.mu.believes = false
			c.sayLocked("lost")
		}
		c.mu.Unlock()
		if told || !current {
			return
		}
	}
}

func (c *clientProcess) release() {
	c.mu.Lock()
	h := c.mu.hold
	c.mu.hold, c.mu.believes = nil, false
	c.sayLocked("releasing")
	c.mu.Unlock()
	if h == nil {
		c.say("unreleased nothing is held")
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := h.Release(ctx); err != nil {
		c.say("unreleased %v", err)
		return
	}
	c.say("released")
}

// write looks at the hold, and writes if it is still believed.
func (c *clientProcess) write() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.believes {
		if err := look(c.mu.hold); err != nil {
			c.mu.believes = false
			c.sayLocked("lost %v", err)
		}
	}
	if !c.mu.believes {
		c.sayLocked("refrained")
		return
	}
	c.sayLocked("write %s looked", c.mu.token)
}

// look returns the reason why a hold has ended, as far as the client can detect it.
func look(h Hold) error {
	if l, ok := h.(Looker); ok {
		return l.Look()
	}
	select {
	case <-h.Lost(): // nil for a system without notification
		return errors.New("lost")
	default:
		return nil
	}
}

func (c *clientProcess) crowd(n int, gap, hold time.Duration) {
	locks := make([]Lock, n)
	for i := range locks {
		var err error
		if locks[i], err = c.open(fmt.Sprintf("%s-%d", c.args.Options.Client, i)); err != nil {
			c.say("failed %v", err)
			return
		}
		defer locks[i].Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for i, lock := range locks {
		all.Go(func() {
			h, err := lock.Acquire(ctx)
			if err != nil {
				c.say("failed %v", err)
				return
			}
			c.say("grant %d %s", i, token(h))
			time.Sleep(hold)
			c.say("left %d", i)
			if err := h.Release(ctx); err != nil {
				c.say("failed %v", err)
			}
		})
		time.Sleep(gap)
	}
	c.say("waiting")
	all.Wait()
	c.say("done")
}

func (c *clientProcess) cycle(lock Lock, d time.Duration) {
	// Some systems wait long for no reason. If another client gets the lock and releases it at
	// once, Consul's api.Lock takes the lock to be in its lock-delay, and tries again 5 s later.
	ctx, cancel := context.WithTimeout(context.Background(), d+30*time.Second)
	defer cancel()
	count := 0
	for end := time.Now().Add(d); time.Now().Before(end); count++ {
		h, err := lock.Acquire(ctx)
		if err == nil {
			err = h.Release(ctx)
		}
		if err != nil {
			c.say("failed %v", err)
			return
		}
	}
	c.say("cycled %d", count)
}
