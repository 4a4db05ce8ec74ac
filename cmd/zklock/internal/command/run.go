package command

// One run: connect, wait for the lock, run the command under it, release.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/zklock/zklock"
	"github.com/zklock/zklock/cmd/zklock/internal/supervise"
)

// note prints a message that is useful but not important, so --quiet suppresses it.
func (o *runOptions) note(format string, args ...any) {
	if !o.quiet {
		fmt.Fprintf(o.stderr, "zklock: %s: %s\n", o.path, fmt.Sprintf(format, args...))
	}
}

func (o *runOptions) run(ctx context.Context) error {
	outliveReaders()
	if err := zklock.ValidatePath(o.path); err != nil {
		return &exitError{exitUsage, err}
	}
	opts, err := o.options(o.stderr)
	if err != nil {
		return err
	}
	mode, err := o.leaseMode()
	if err != nil {
		return err
	}
	lockOpts, err := o.lockOptions()
	if err != nil {
		return err
	}
	switch supervise.Leftovers(o.leftovers) {
	case supervise.EndThem, supervise.LeaveThem, supervise.WaitFor:
	default:
		return exitf(exitUsage, "--leftovers %q: give end, leave or wait", o.leftovers)
	}
	if o.wait < 0 {
		return exitf(exitUsage, "--wait %v is negative: give 0 or more, or leave it out to wait indefinitely", o.wait)
	}
	if o.killAfter >= 0 {
		// Most mistakes show without a server. The final check uses the session timeout that the
		// servers grant.
		if _, err := newPlan(mode, o.sessionTimeout, o.killAfter); err != nil {
			return &exitError{exitUsage, err}
		}
	}
	program, err := findProgram(o.argv[0])
	if err != nil {
		return err
	}

	var out supervise.Output = stderr()
	if o.logFormat == logJSON {
		out = jsonWriter{out}
	}
	runner := supervise.New(out)
	defer runner.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t := &taking{runOptions: o, ctx: ctx, end: func(s os.Signal) { cancel(interrupted{signal: s}) }, runner: runner, program: program}
	t.wait()

	wctx, stop := o.waiting(ctx)
	defer func() { stop() }()
	if o.chroot {
		acl, _ := o.nodeACL() // lockOptions has checked it
		opts = append(opts, zklock.WithCreateChroot(acl...))
	}
	if t.s, err = o.connectWithFile(wctx, append(opts, zklock.WithLease(mode))); err != nil {
		return o.skip(o.explainConnect(ctx, wctx, err))
	}
	defer func() {
		_ = t.s.Close() // ends the ZooKeeper session, and with it all remaining nodes of the lock
		runner.Dismiss()
	}()

	if t.plan, err = newPlan(mode, t.s.Stats().SessionTimeout, o.killAfter); err != nil {
		return exitf(exitUsage, "%w (the servers granted a session timeout of %v)", err, t.s.Stats().SessionTimeout)
	}
	if t.recipe, err = o.recipe(t.s, lockOpts); err != nil {
		return classify(err)
	}
	if err := o.checkPath(wctx, t.s); err != nil {
		return err
	}
	if err := o.checkOuter(wctx, t.s, t.recipe, outerHolds(os.Getenv)); err != nil {
		return err
	}
	for pause := firstPause; ; pause = min(2*pause, 5*time.Second) {
		began := time.Now()
		again, err := t.term(wctx)
		if again == "" || !o.elect || ctx.Err() != nil {
			return err
		}
		fmt.Fprintf(o.stderr, "zklock: %s; campaigning again\n", again)
		o.waited = true
		o.report.wait()
		runner.Dismiss()
		t.wait()
		if time.Since(began) > 5*time.Second {
			pause = firstPause
		}
		select { // let other candidates go first, as Election.Campaign does
		case <-time.After(pause):
		case <-ctx.Done():
		}
		stop()
		wctx, stop = o.waiting(ctx)
	}
}

// findProgram returns the path of a program, or an error with a shell's exit code.
func findProgram(name string) (string, error) {
	program, err := exec.LookPath(name)
	switch {
	case err == nil:
		return program, nil
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EISDIR):
		return "", &exitError{exitCannotRun, err}
	}
	return "", &exitError{exitNotFound, err}
}

// firstPause is the pause before a candidate campaigns again. It doubles each time that a term ends
// soon.
const firstPause = 20 * time.Millisecond

// taking is a run that takes its lock: once, or once for each term of a leader.
type taking struct {
	*runOptions
	ctx     context.Context // ends when a signal ends zklock
	end     func(os.Signal) // ends ctx
	runner  *supervise.Runner
	program string
	s       *zklock.Session
	plan    supervise.Plan
	recipe  recipe
}

// wait has signals end the wait.
func (t *taking) wait() {
	t.runner.OnSignal(func(s os.Signal) {
		switch {
		case !supervise.Ends(s): // for a command that has not started
			supervise.SuspendedBy(s)
		case t.ctx.Err() == nil:
			t.end(s)
		case s != os.Interrupt: // timeout(1) sends its signal to us, and to our group
		default:
			fmt.Fprintf(t.stderr, "zklock: %s: ended by a second signal: %v\n", t.path, s)
			t.report.end(exitCodeOf(s))
			interrupted{signal: s}.end()
		}
	})
}

// term waits for the lock until wctx ends, runs the command under it, and releases. again is the
// reason why a candidate may campaign again: the lock was lost before the release, or the run gave
// way. Otherwise it is "".
func (t *taking) term(wctx context.Context) (again string, err error) {
	if isDone, err := t.isDone(wctx); isDone || err != nil {
		return "", err
	}
	connection := followConnection(t.s)
	defer connection()
	hold, err := t.acquire(wctx, t.s, t.recipe)
	if err != nil {
		return "", t.skip(t.explainAcquire(t.ctx, t.s, t.recipe, err))
	}
	var out supervise.Outcome
	granted, lost := time.Now(), false
	t.report.grant()
	defer func() { t.report.release(lost, out.How != supervise.NotStarted) }()
	t.runner.KeepSignals(func(s os.Signal) {
		if supervise.Ends(s) && s != syscall.SIGHUP { // which many programs take for "read your configuration again"
			t.end(s)
		}
	})
	over := t.giveWay(hold)
	var onceErr error
	var i interrupted
	if t.ctx.Err() != nil && errors.As(context.Cause(t.ctx), &i) { // a signal arrived together with the lock
		out = supervise.Outcome{Died: i.signal, How: supervise.NotStarted}
	} else {
		out, onceErr = t.runCommand(hold)
	}
	gaveWay := over() && out.Err == nil
	if out.Died != nil && out.How == supervise.NotStarted {
		fmt.Fprintf(t.stderr, "zklock: %s (token %d): %s: %v\n", t.path, hold.Token(), out.How, interrupted{signal: out.Died})
	}
	if errors.Is(out.Lost, supervise.ErrDeadline) {
		out.Lost = fmt.Errorf("no server renewed the lease in time: %s", connection())
	}
	switch lost, err = t.release(hold, out); {
	case lost:
		again = err.Error()
	case gaveWay:
		again = fmt.Sprintf("%s: gave way (token %d)", t.path, hold.Token())
	case out.Err == nil && out.How != supervise.NotStarted:
		t.stay(hold, granted)
	}
	if err == nil && onceErr != nil {
		err = classify(onceErr)
	}
	return again, err
}

func (t *taking) job(hold *zklock.Hold) supervise.Job {
	name := fmt.Sprintf("%s (token %d, node %s, process %d)", t.path, hold.Token(), hold.Node(), os.Getpid())
	return supervise.Job{
		Name:      name,
		Program:   t.program,
		Argv:      t.argv,
		Env:       t.environ(hold),
		Hold:      hold,
		Plan:      t.plan,
		Leftovers: supervise.Leftovers(t.leftovers),
		Note:      t.note,
		Began: func() {
			if t.verbose || t.waited {
				t.note("acquired, token %d", hold.Token())
			}
		},
		Will: func() []byte {
			e := t.ending(name)
			e.Delay, e.Report = t.lockDelay, t.report.ifKilled()
			return e.will()
		},
		Keep: t.keep,
		Abandon: func(err error) {
			fmt.Fprintf(t.stderr, "zklock: %s: %v; others get the lock when the session ends\n", name, err)
			t.report.end(exitUsage)
			exit(exitUsage)
		},
	}
}

// release releases the lock after the command, and returns how the run ended. A signal cuts it
// short, and a second SIGINT ends everything. lost reports whether the lock was lost before.
func (t *taking) release(hold *zklock.Hold, out supervise.Outcome) (lost bool, err error) {
	o, s := t.runOptions, t.s
	patience := max(2*time.Second, s.Stats().SessionTimeout/3)
	if out.Lost != nil {
		patience = time.Second // there is little to release
	}
	ctx, cut := context.WithTimeoutCause(context.Background(), patience, errors.New("no reply in time"))
	defer cut()
	asked := false
	t.runner.OnSignal(func(sig os.Signal) {
		switch {
		case !supervise.Ends(sig):
		case !asked:
			asked = true
			t.end(sig)
			cut()
		case sig != os.Interrupt:
		default:
			fmt.Fprintf(o.stderr, "zklock: %s: not released (token %d): ended by a second signal: %v; others get the lock when the session ends, within %v\n",
				o.path, hold.Token(), sig, s.Stats().SessionTimeout)
			o.report.end(exitCodeOf(sig))
			interrupted{signal: sig}.end()
		}
	})
	err = hold.Release(ctx)
	if out.Lost == nil && out.How == "" && errors.Is(err, zklock.ErrLost) {
		out.Lost = err
	}
	switch {
	case out.Lost != nil:
		how := out.How
		if how == "" {
			how = "the command had ended by itself, and may have overlapped with the next holder"
		}
		return true, exitf(exitLost, "%s: lost the lock (token %d, node %s): %w; %s", o.path, hold.Token(), hold.Node(), cause(out.Lost), how)
	case err != nil && !errors.Is(err, zklock.ErrLost): // a loss before anything ran under the lock is not reported
		fmt.Fprintf(o.stderr, "zklock: %s: not released (token %d, node %s): %v; others get the lock when the session ends, within %v\n",
			o.path, hold.Token(), hold.Node(), cause(err), s.Stats().SessionTimeout)
	}
	if out.Err != nil {
		return false, exitf(exitUsage, "%s (token %d, node %s): %w", o.path, hold.Token(), hold.Node(), out.Err)
	}
	if out.Died != nil {
		return false, interrupted{out.Died, out.Group}
	}
	if out.Exit != 0 {
		return false, &exitError{code: out.Exit}
	}
	return false, nil
}

func (o *runOptions) acquire(ctx context.Context, s *zklock.Session, r recipe) (*zklock.Hold, error) {
	if o.noWait {
		ctx, cancel := context.WithTimeoutCause(ctx, o.connectTimeout, errNoServer{o.connectTimeout})
		defer cancel()
		return r.TryAcquire(ctx)
	}
	watching, stop := context.WithCancel(ctx)
	watched := make(chan ourNode, 1)
	go func() { watched <- o.watchQueue(watching, s, r) }()
	hold, err := r.Acquire(ctx)
	stop()
	o.ours = <-watched // no more notes about the wait after its end
	o.undraw()
	return hold, err
}

// cause returns the Err of the library's Error, because our own message names lock and node.
func cause(err error) error {
	var e *zklock.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// followConnection follows the Session's connection. The first call of the function that it returns
// ends that, and describes the connection then. The Session must have been connected meanwhile.
func followConnection(s *zklock.Session) func() string {
	ctx, stop := context.WithCancel(context.Background())
	changes := s.Changes(ctx)
	st := s.Stats()
	now := zklock.Change{State: st.State, Server: st.Server}
	attached := func(c zklock.Change) bool {
		return c.State == zklock.StateConnected || c.State == zklock.StateReconnected
	}
	return func() string {
		stop()
		for c := range changes {
			if attached(c) != attached(now) {
				now = c
			}
		}
		if attached(now) {
			return fmt.Sprintf("%s is connected, and does not renew it", now.Server)
		}
		return fmt.Sprintf("no server has been connected for %v, the last was %s", time.Since(now.Time).Round(100*time.Millisecond), now.Server)
	}
}
