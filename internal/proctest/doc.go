// Package proctest has helpers for tests of processes, which the command and its supervisor share:
// a process whose output is collected, and jobs that record when they run, and under which token.
package proctest
