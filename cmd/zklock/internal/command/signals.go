package command

// zklock ends by the signal that ended its command, or its wait.

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/zklock/zklock/cmd/zklock/internal/supervise"
)

// outliveReaders keeps this process from ending by SIGPIPE when the reader of its output has ended:
// the write fails instead. Commands that end soon do without.
func outliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// exitCodeOf returns the exit code that a shell gives to the end by a signal.
func exitCodeOf(s os.Signal) int {
	if n, ok := s.(syscall.Signal); ok {
		return exitSignal + int(n)
	}
	return exitUsage
}

// interrupted means that a signal ended the wait or the command. zklock then ends by that signal,
// too: a shell continues a script after an exit code, and not after Ctrl-C.
type interrupted struct {
	signal os.Signal
	group  bool // only the command's group got it from the terminal; zklock's should get it too
}

func (i interrupted) Error() string { return "ended by signal: " + i.signal.String() }

// end ends zklock by the signal, or, where that is impossible, with the code that a shell gives for
// it.
func (i interrupted) end() {
	stderr().Flush()
	if s, ok := i.signal.(syscall.Signal); ok {
		supervise.DieOf(s, i.group)
	}
	os.Exit(exitCodeOf(i.signal))
}
