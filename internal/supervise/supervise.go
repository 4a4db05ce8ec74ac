// Package supervise runs a command that has to end, with all that came from it, before a deadline that moves, also if this process
// is killed, stopped or hangs: a second process of the same binary, the guardian, has the last word. What the deadline is of it does
// not know: it is given a Hold, and a will for the guardian to carry out when this process has died. The comments call that process, the
// one with the Runner, zklock.
//
// The files, from the outside in: supervise.go is what a program calls; limits.go says, purely, when the command has to end;
// signals.go takes the signals; run_unix.go looks after the command, with guardian_unix.go in the second process;
// protocol_unix.go is what the two say to each other; kin_unix.go and tree_linux.go end what came from the command;
// terminal_unix.go hands the terminal over and takes it back; own_*.go stops and ends this process as the command was stopped or
// ended; proc_*.go is what the system says about processes. run_other.go is all of that where there are no process groups.
package supervise

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// Exit codes of what is re-executed, those that a shell gives.
const (
	ExitFailed    = 125 // the supervision itself failed
	ExitCannotRun = 126 // the command is there and cannot be run
	ExitNotFound  = 127 // the command is not there
)

// Hold is what the command runs under. Its deadline moves ahead until it is lost.
type Hold interface {
	Deadline() time.Time
	Lost() <-chan struct{} // closed when the hold ends before its deadline
	Err() error            // why it was lost; nil while it stands
}

// Output is where a program says what happens. It is written beside the work: neither method waits for a reader for long.
type Output interface {
	io.Writer
	Flush()
}

// Leftovers says what happens to processes that the command leaves running.
type Leftovers string

// What happens to them.
const (
	EndThem   Leftovers = "end"
	LeaveThem Leftovers = "leave" // those in a session of their own; they are not under the lock
	WaitFor   Leftovers = "wait"
)

// Job is a command to run under a hold. All of it is set.
type Job struct {
	Name      string // of what is held, for messages
	Program   string // the path of Argv[0]
	Argv, Env []string
	Hold      Hold
	Plan      Plan
	Leftovers Leftovers

	Note    func(format string, args ...any) // is told what is good to know
	Began   func()                           // called when the command exists; it has said nothing yet
	Will    func() []byte                    // for the guardian should this process be killed; nil if nothing is to be done then. It is asked again and again
	Abandon func(err error)                  // ends this process at once, as the first of a container: the command is out of control
}

// deadline is the hold's deadline on the clock that processes share. That clock is read first: a pause between the
// two reads makes the deadline earlier than it is, not later.
func (j *Job) deadline() Moment {
	n := Now()
	return n.Add(time.Until(j.Hold.Deadline()))
}

// ErrDeadline is the Outcome's Lost if the deadline was about to come.
var ErrDeadline = errors.New("the deadline was near")

// NotStarted is the Outcome's How of a command that was not started.
const NotStarted = "the command was not started"

// Outcome is how a command ended.
type Outcome struct {
	Exit  int       // its exit code
	Died  os.Signal // by which signal it ended instead, or which kept it from starting; nil if none did
	Group bool      // only the command's group had that signal from the terminal; this process's has a right to it
	Lost  error     // why the hold was lost, if that ended the command, or kept it from starting: its Err, or ErrDeadline
	How   string    // what was done to the command for it, or NotStarted
	Err   error     // what kept the command from running to its end, apart from that
}

// Runner is this process as one that runs commands, one at a time: it takes the signals and, as the first process of a
// container, reaps orphans.
type Runner struct {
	out     Output
	desk    *desk
	reaped  func() // ends the reaping
	child   guardianProcess
	kept    chan os.Signal // for the next command
	dismiss func()         // ends the guardian
}

// New begins. The program calls Reexecuted before.
func New(out Output) *Runner {
	r := &Runner{out: out, dismiss: func() {}}
	startThreads()
	r.reaped = r.reapOrphans()
	r.desk = openDesk(func(os.Signal) {})
	return r
}

// Close ends the taking of signals and the reaping. A guardian has been dismissed before.
func (r *Runner) Close() {
	r.desk.close()
	r.reaped()
}

// OnSignal has the signals that come from now on handled. handle is quick, and uses no method of the Runner. When OnSignal
// returns, what handled them before has returned too.
func (r *Runner) OnSignal(handle func(os.Signal)) { r.desk.route(handle) }

// KeepSignals keeps the signals that come from now on for the command that Run runs next, and shows each to see.
func (r *Runner) KeepSignals(see func(os.Signal)) {
	kept := make(chan os.Signal, 64)
	r.kept = kept
	r.desk.route(func(s os.Signal) {
		see(s)
		select {
		case kept <- s:
		default: // 64 signals are waiting: like the kernel, we do not count them
		}
	})
}

// Send has the command get a signal as if that had been sent to this process. It is for the time between KeepSignals and the return
// of Run, from any goroutine.
func (r *Runner) Send(s os.Signal) {
	select {
	case r.kept <- s:
	default: // as in KeepSignals
	}
}

// Dismiss ends the guardian of the command that Run ran last: what it ran under was given back, and its will is void.
func (r *Runner) Dismiss() {
	r.dismiss()
	r.dismiss = func() {}
}

// InForeground says whether a descriptor is this process's terminal, and this process's group is in its foreground: what others write there
// comes from below.
func InForeground(f *os.File) (is bool) {
	if c, err := f.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { is = inForeground(int(fd)) })
	}
	return is
}

// Width is how many columns a terminal has, 80 if it does not say.
func Width(f *os.File) int {
	width := 0
	if c, err := f.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { width, _, _ = term.GetSize(int(fd)) })
	}
	if width <= 0 {
		return 80
	}
	return width
}

// IsTerminal leaves the descriptor as it is, which other processes may share. (Fd would make it a blocking one.)
func IsTerminal(f *os.File) (is bool) {
	if c, err := f.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { is = term.IsTerminal(int(fd)) })
	}
	return is
}
