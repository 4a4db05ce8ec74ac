package mutants

// The command's. The binary that the tests run is built with the mistake, too.
var command = []mutant{
	{"a stop is told once only", "a shell has its job back", "cmd/zklock/guardian_unix.go", "TestScenes", []Swap{
		{"// lookAtLeader notices", "var once bool\n\n// lookAtLeader notices"},
		{"\tcase st.stopped != 0: //", "\tcase st.stopped != 0 && !once: //"},
		{"\t\tg.wire.send(report{Stopped: ", "\t\tonce = true\n\t\tg.wire.send(report{Stopped: "}}},
	{"Ctrl-C is the command's alone", "a script ends as without zklock", "cmd/zklock/supervise_unix.go", "TestScenes", []Swap{{
		"keys && s.tty != nil && s.tty.given}", "false && keys}"}}},
	{"a signal that ends the command becomes a code", "a loop ends as without zklock", "cmd/zklock/run.go", "TestScenes", []Swap{{
		"\t\treturn out.died\n", "\t\treturn &exitError{code: exitCodeOf(out.died.signal)}\n"}}},
	{"all stop by SIGSTOP", "timeout(1) goes on", "cmd/zklock/supervise_unix.go", "TestScenes", []Swap{{
		"\t\tstopSelf(sig, group)\n", "\t\tstopSelf(unix.SIGSTOP, group || true)\n"}}},
	{"only the leader asks for the terminal", "timeout(1) as COMMAND", "cmd/zklock/supervise_unix.go", "TestScenes", []Swap{{
		"asks := wantsTerminal(s.pgid)", "asks := false && wantsTerminal(s.pgid)"}}},
	{"the terminal stays with a dead group", "a script reads after a SIGKILL of zklock", "cmd/zklock/terminal_unix.go", "TestScenes", []Swap{{
		"\tif t.set(t.own) == nil {\n\t\tt.restore()", "\tif t.own == 0 {\n\t\tt.restore()"}}},
	{"the command's group is never orphaned", "an orphan's read fails", "cmd/zklock/guardian_unix.go", "TestScenes", []Swap{{
		"\t_, _ = unix.Setsid()\n", ""}}},

	// What came from the command ends with the hold.
	{"orphans go to process 1", "docs/command.md, the promise", "cmd/zklock/tree_linux.go", "TestOutlives_Nothing|TestLeftovers_End_AllIsEndedAndNamed", []Swap{{
		"return seesDescendants() && unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == nil", "return seesDescendants()"}}},
	{"nothing is stopped before it is killed", "docs/command.md, the promise", "cmd/zklock/tree_linux.go", "TestOutlives_NobodyActsOnTheDeathOfAnother", []Swap{{
		"for still := 0; still < 2 &&", "for still := 2; still < 2 &&"}}},
	{"a number is taken for the process that it was", "docs/command.md, the promise", "cmd/zklock/tree_linux.go", "TestTree_NumberIsAnothersNow_IsNotTouched", []Swap{{
		"case p.parent != parent.pid, parent.signal(0) == unix.ESRCH:", "case false:"}}},
	{"a parent's number is taken for the parent", "docs/command.md, the promise", "cmd/zklock/tree_linux.go", "TestTree_NumberIsAnothersNow_IsNotTouched", []Swap{{
		"case p.parent != parent.pid, parent.signal(0) == unix.ESRCH:", "case p.parent != parent.pid:"}}},
	{"a session of its own is ended in spite of --leftovers leave", "docs/command.md, leftovers", "cmd/zklock/tree_linux.go", "TestLeftovers_Leave_OnlyWhatHasASessionOfItsOwnRunsOn", []Swap{{
		"if !t.leave || p.session == t.session {", "if true {"}}},
	{"a session without a number is none", "docs/command.md, leftovers", "cmd/zklock/tree_linux.go", "TestLeftovers_Leave_OurSessionHasNoNumber", []Swap{{
		"if !t.leave || p.session == t.session {", "if !t.leave || t.session == 0 || p.session == t.session {"}}},
	{"zklock does not inherit from its guardian", "docs/command.md, the promise", "cmd/zklock/supervise_unix.go", "TestOutlives_Nothing", []Swap{{
		"if guardianProcess.heirs {", "if false {"}}},
	{"what zklock had as children is the guardian's", "docs/command.md, the promise", "cmd/zklock/proc_linux.go", "TestOutlives_GuardianKilled_WhatWasThereBefore_LivesOn", []Swap{{
		"err == unix.ECHILD && becomeSubreaper()", "err == err && becomeSubreaper()"}}},
	{"process 1 releases when its guardian is killed", "docs/command.md, the promise", "cmd/zklock/supervise_unix.go", "TestOutlives_GuardianOfProcess1Killed_AllEndsBeforeTheSession", []Swap{{
		"if os.Getpid() == 1 {", "if false {"}}},
	{"nothing continues a stopped guardian", "docs/command.md, the promise", "cmd/zklock/guardian_unix.go", "TestOutlives_Nothing", []Swap{{
		"\tg.alarm.set(next)\n", ""}}},
	{"a reader of the command's output is ended at once", "docs/command.md, leftovers", "cmd/zklock/guardian_unix.go", "TestLeftovers_ReaderOfTheOutput_ReadsOn", []Swap{{
		"case g.ending, n < g.parted:", "case g.ending:"}}},
	{"wait waits on when zklock is told to end", "docs/command.md, leftovers", "cmd/zklock/supervise_unix.go", "TestLeftovers_Wait_LockIsHeldAsLong", []Swap{{
		"\t\ts.wire.send(order{End: true})\n", ""}}},
	{"the guardian has no threads before", "docs/command.md, the promise", "cmd/zklock/guardian_unix.go", "TestOutlives_GuardianHasItsThreads", []Swap{{
		"\tstartThreads()\n", ""}}},
}
