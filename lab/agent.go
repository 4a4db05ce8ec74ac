package main

// An agent is the lab's end of a client's process. It sends commands to the process, reads its
// lines, and injects the faults of the experiment.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

type said struct {
	At   time.Time
	Word string
	Args []string
}

func parseSaid(line string) (s said, err error) {
	fields := strings.Fields(line)
	if len(fields) < 2 {
		return s, fmt.Errorf("a client says %q", line)
	}
	us, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		return s, fmt.Errorf("a client says %q", line)
	}
	return said{At: time.UnixMicro(us), Word: fields[1], Args: fields[2:]}, nil
}

func (s said) text() string { return strings.Join(s.Args, " ") }

func (s said) entries(who string) []entry {
	tok := func(i int) (t int64) {
		if i < len(s.Args) {
			t, _ = strconv.ParseInt(s.Args[i], 10, 64) // - means none
		}
		return t
	}
	var sequencer string
	for _, arg := range s.Args {
		if text, ok := strings.CutPrefix(arg, "+"); ok {
			sequencer = text
		}
	}
	switch s.Word {
	case "acquired":
		return []entry{{At: s.At, Who: who, What: enter, Token: tok(0), Sequencer: sequencer, Shared: slices.Contains(s.Args, "shared")}}
	case "downgrading":
		return []entry{{At: s.At, Who: who, What: enter, Shared: true}}
	case "lost", "releasing":
		return []entry{{At: s.At, Who: who, What: leave, Text: s.Word}}
	case "write":
		return []entry{{At: s.At, Who: who, What: write, Token: tok(0), Sequencer: sequencer, Looked: slices.Contains(s.Args, "looked")}}
	case "grant":
		return []entry{{At: s.At, Who: who + "-" + s.Args[0], What: enter, Token: tok(1)}}
	case "left":
		return []entry{{At: s.At, Who: who + "-" + s.Args[0], What: leave}}
	}
	return nil
}

// agent is used by one goroutine.
type agent struct {
	name    string
	ledger  *ledger
	arrive  func(entry) // called for what is written at the resource
	relays  []*relay
	traffic traffic
	cmd     *exec.Cmd
	in      io.WriteCloser
	errs    strings.Builder // what it prints on standard error
	reading sync.WaitGroup

	mu struct {
		sync.Mutex
		said  []said
		more  chan struct{} // closed when there is more
		ended error
	}
	next int // the first line that await has not returned or skipped
}

// startAgent starts a client's process over relays of its own, and waits until it is ready. arrive
// is called for each of its writes.
func startAgent(ctx context.Context, command []string, a arguments, l *ledger, arrive func(entry)) (*agent, error) {
	ag := &agent{name: a.Options.Client, ledger: l, arrive: arrive}
	ag.mu.more = make(chan struct{})
	servers := a.Servers
	a.Servers = nil
	for _, addr := range servers {
		r, err := startRelay(addr, &ag.traffic)
		if err != nil {
			return nil, errors.Join(err, ag.close())
		}
		ag.relays = append(ag.relays, r)
		a.Servers = append(a.Servers, r.addr())
	}
	ag.cmd = exec.Command(command[0], append(slices.Clone(command[1:]), a.words()...)...)
	ag.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	endWithParent(ag.cmd.SysProcAttr)
	ag.cmd.Stderr = &ag.errs
	var err error
	if ag.in, err = ag.cmd.StdinPipe(); err != nil {
		return nil, errors.Join(err, ag.close())
	}
	out, w, err := os.Pipe() // not StdoutPipe, which Wait would close before all is read
	if err != nil {
		return nil, errors.Join(err, ag.close())
	}
	ag.cmd.Stdout = w
	err = startLocked(ag.cmd)
	w.Close()
	if err != nil {
		out.Close()
		ag.cmd = nil
		return nil, errors.Join(err, ag.close())
	}
	ag.reading.Go(func() { ag.read(out) })
	if _, err := ag.await(60*time.Second, "ready"); err != nil {
		return nil, errors.Join(err, ag.close())
	}
	return ag, nil
}

func (ag *agent) read(out io.ReadCloser) {
	defer out.Close()
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	var err error
	for lines.Scan() {
		var s said
		if s, err = parseSaid(lines.Text()); err != nil {
			break
		}
		for _, e := range s.entries(ag.name) {
			if e.What == write {
				ag.arrive(e)
			} else {
				ag.ledger.say(e)
			}
		}
		ag.mu.Lock()
		ag.mu.said = append(ag.mu.said, s)
		close(ag.mu.more)
		ag.mu.more = make(chan struct{})
		ag.mu.Unlock()
	}
	ended := errors.Join(err, ag.cmd.Wait())
	ag.mu.Lock()
	defer ag.mu.Unlock()
	ag.mu.ended = fmt.Errorf("client %s has ended (%v): %s", ag.name, ended, ag.errs.String())
	close(ag.mu.more)
	ag.mu.more = make(chan struct{})
}

func (ag *agent) tell(format string, args ...any) error {
	_, err := fmt.Fprintf(ag.in, format+"\n", args...)
	return err
}

// errQuiet is the error of await if no such line arrived in time.
var errQuiet = errors.New("nothing was said")

// await returns the next line with one of the words, and skips all other lines. After d it returns
// errQuiet, and then has skipped nothing.
func (ag *agent) await(d time.Duration, words ...string) (said, error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for late := false; ; {
		ag.mu.Lock()
		all, more, ended := ag.mu.said, ag.mu.more, ag.mu.ended
		ag.mu.Unlock()
		for i := ag.next; i < len(all); i++ {
			if slices.Contains(words, all[i].Word) {
				ag.next = i + 1
				return all[i], nil
			}
		}
		if ended != nil {
			return said{}, ended
		}
		if late {
			return said{}, fmt.Errorf("%w by %s of %s in %v", errQuiet, ag.name, strings.Join(words, " or "), d)
		}
		select {
		case <-more:
		case <-timer.C:
			late = true
		}
	}
}

// heard returns the last line with the word, regardless of the position of await.
func (ag *agent) heard(word string) (said, bool) {
	ag.mu.Lock()
	defer ag.mu.Unlock()
	for _, s := range slices.Backward(ag.mu.said) {
		if s.Word == word {
			return s, true
		}
	}
	return said{}, false
}

func (ag *agent) note(w what, text string) time.Time {
	now := time.Now()
	ag.ledger.say(entry{At: now, Who: ag.name, What: w, Text: text})
	return now
}

// kill ends the process as a crash does, and returns the time.
func (ag *agent) kill() (time.Time, error) {
	at := ag.note(killed, "killed") // before the kill, so that no client is granted before the ledger has the kill
	err := ag.cmd.Process.Signal(syscall.SIGKILL)
	ag.reading.Wait()
	return at, err
}

// stop stops the process where it is, with SIGSTOP.
func (ag *agent) stop() (time.Time, error) {
	at := ag.note(stop, "stopped")
	return at, ag.cmd.Process.Signal(syscall.SIGSTOP)
}

func (ag *agent) cont() (time.Time, error) {
	at := ag.note(cont, "goes on")
	return at, ag.cmd.Process.Signal(syscall.SIGCONT)
}

func (ag *agent) cut() time.Time {
	for _, r := range ag.relays {
		r.cut()
	}
	return ag.note(fault, "cut off")
}

func (ag *agent) cutServers(which ...int) {
	for _, i := range which {
		ag.relays[i].cut()
	}
	ag.note(fault, "cut off from some")
}

func (ag *agent) heal() time.Time {
	for _, r := range ag.relays {
		r.heal()
	}
	return ag.note(fault, "back")
}

// letPass lets n more requests pass to each server. After them it drops all requests, or cuts the
// process off.
func (ag *agent) letPass(n int, cut bool) {
	for _, r := range ag.relays {
		r.letPass(n, cut)
	}
}

// loseAnswers drops the servers' responses until hangUp.
func (ag *agent) loseAnswers() time.Time {
	for _, r := range ag.relays {
		r.muted(true)
	}
	return ag.note(fault, "answers are lost")
}

// hangUp closes the connections; new ones work.
func (ag *agent) hangUp() time.Time {
	for _, r := range ag.relays {
		r.muted(false)
		r.sever()
	}
	return ag.note(fault, "connections end")
}

// close ends the process, in any state, and the relays.
func (ag *agent) close() error {
	if ag.in != nil {
		ag.in.Close()
	}
	if ag.cmd != nil && ag.cmd.Process != nil {
		_ = ag.cmd.Process.Signal(syscall.SIGKILL) // has no effect if it has ended
	}
	ag.reading.Wait()
	for _, r := range ag.relays {
		r.close()
	}
	return nil
}
