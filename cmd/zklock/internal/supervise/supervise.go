// Package supervise runs a command that has to end, with everything that came from it, before a
// deadline that moves, even if this process is killed, stopped or hangs: a second process of the
// same binary, the guardian, has the last word. The package has no notion of the deadline's
// meaning: it is given a Hold, and a will for the guardian to carry out when this process has died.
// The comments call the process with the Runner zklock.
//
// The files, from the outside in: supervise.go is the API; limits.go computes when the command has
// to end; signals.go receives the signals; run_unix.go supervises the command, with
// guardian_unix.go in the second process; protocol_unix.go has their messages; kin_unix.go and
// tree_linux.go end everything that came from the command; terminal_unix.go hands the terminal over
// and takes it back; own_*.go stops and ends this process as the command was stopped or ended;
// proc_*.go reads information about processes. run_other.go replaces all of that where there are no
// process groups.
package supervise

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// Exit codes of re-executed processes, which are those that a shell gives.
const (
	ExitFailed    = 125 // the supervision itself failed
	ExitCannotRun = 126 // the command exists and cannot be run
	ExitNotFound  = 127 // the command does not exist
)

// Hold is the hold under which the command runs. Its deadline becomes later until it is lost.
type Hold interface {
	Deadline() time.Time
	Lost() <-chan struct{} // closed when the hold ends before its deadline
	Err() error            // why it was lost; nil while it is valid
}

// Output receives the messages of a program. Neither method waits long for a reader.
type Output interface {
	io.Writer
	Flush()
}

// Leftovers is the action on processes that the command leaves running.
type Leftovers string

// The actions.
const (
	EndThem   Leftovers = "end"
	LeaveThem Leftovers = "leave" // the processes in a session of their own; they are not under the lock
	WaitFor   Leftovers = "wait"
)

// Job is a command to run under a hold. All of it is set, except Keep.
type Job struct {
	Name      string // of what is held, for messages
	Program   string // the path of Argv[0]
	Argv, Env []string
	Hold      Hold
	Plan      Plan
	Leftovers Leftovers

	Note    func(format string, args ...any) // prints a message that is useful but not important
	Began   func()                           // called when the command exists; it has printed nothing yet
	Will    func() []byte                    // for the guardian if this process is killed; nil if nothing is to be done then. It is called repeatedly
	Keep    func() (*os.File, error)         // returns a file that the guardian keeps open until all is ended; nil for none
	Abandon func(err error)                  // ends this process at once, as the first of a container: the command is out of control
}

// deadline returns the hold's deadline on the clock that processes share. That clock is read first:
// a pause between the two reads makes the deadline earlier than it is, not later.
func (j *Job) deadline() Moment {
	n := Now()
	return n.Add(time.Until(j.Hold.Deadline()))
}

// ErrDeadline is the Outcome's Lost if the deadline was near.
var ErrDeadline = errors.New("the deadline was near")

// NotStarted is the Outcome's How of a command that was not started.
const NotStarted = "the command was not started"

// Outcome is how a command ended.
type Outcome struct {
	Exit  int       // its exit code
	Died  os.Signal // by which signal it ended instead, or which kept it from starting; nil if none did
	Group bool      // only the command's group got that signal from the terminal; this process's should get it too
	Lost  error     // why the hold was lost, if that ended the command, or kept it from starting: its Err, or ErrDeadline
	How   string    // how the command was ended for it, or NotStarted
	Err   error     // any other reason why the command did not run to its end
}

// Runner runs commands in this process, one at a time: it receives the signals and, as the first
// process of a container, reaps orphans.
type Runner struct {
	out     Output
	desk    *desk
	reaped  func() // ends the reaping
	child   guardianProcess
	kept    chan os.Signal // for the next command
	dismiss func()         // ends the guardian
}

// New starts a Runner. The program must have called Reexecuted before.
func New(out Output) *Runner {
	r := &Runner{out: out, dismiss: func() {}}
	startThreads()
	r.reaped = r.reapOrphans()
	r.desk = openDesk(func(os.Signal) {})
	return r
}

// Close ends the handling of signals and the reaping. The guardian must have been dismissed before.
func (r *Runner) Close() {
	r.desk.close()
	r.reaped()
}

// OnSignal sets the handler for all later signals. handle is quick, and uses no method of the
// Runner. When OnSignal returns, the previous handler has returned too.
func (r *Runner) OnSignal(handle func(os.Signal)) { r.desk.route(handle) }

// KeepSignals keeps all later signals for the command that Run runs next, and passes each to see.
func (r *Runner) KeepSignals(see func(os.Signal)) {
	kept := make(chan os.Signal, 64)
	r.kept = kept
	r.desk.route(func(s os.Signal) {
		see(s)
		keep(kept, s)
	})
}

// Send sends the command a signal as if this process had received it. Call it between KeepSignals
// and the return of Run, from any goroutine.
func (r *Runner) Send(s os.Signal) { keep(r.kept, s) }

func keep(kept chan<- os.Signal, s os.Signal) {
	select {
	case kept <- s:
	default: // 64 signals are waiting: like the kernel, we do not count them
	}
}

// Dismiss ends the guardian of the command that Run ran last: its hold was released, and its will
// is void.
func (r *Runner) Dismiss() {
	r.dismiss()
	r.dismiss = func() {}
}

// InForeground reports whether a descriptor is this process's terminal, with this process's group
// in its foreground: other output there comes from processes below.
func InForeground(f *os.File) (is bool) {
	if c, err := f.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { is = inForeground(int(fd)) })
	}
	return is
}

// Width returns how many columns a terminal has, 80 if that is unknown.
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

// IsTerminal does not change the descriptor, which other processes may share. (Fd would make it a
// blocking one.)
func IsTerminal(f *os.File) (is bool) {
	if c, err := f.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { is = term.IsTerminal(int(fd)) })
	}
	return is
}
