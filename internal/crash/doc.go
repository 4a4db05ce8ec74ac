// Package crash has the tests of processes that crash while they hold locks, with a session file.
// Its tests start real processes, and kill or stop them.
package crash
