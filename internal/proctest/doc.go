// Package proctest has what tests of processes share, those of the command and those of its supervisor: a process whose output is
// collected, and jobs that write down when they run, and under which token.
package proctest
