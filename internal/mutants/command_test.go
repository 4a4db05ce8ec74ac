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
		"\t\treturn false, out.died\n", "\t\treturn false, &exitError{code: exitCodeOf(out.died.signal)}\n"}}},
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
	{"what moves up during a look is not asked to end", "docs/command.md, the promise", "cmd/zklock/tree_linux.go", "TestLeftovers_End_ParentDiesMeanwhile_ChildIsAskedToEnd", []Swap{{
		"for range 2 { // one may move up while we look: ", "for range 1 { // "}}},
	{"a second SIGINT kills the group alone", "docs/command.md", "cmd/zklock/guardian_unix.go", "TestRun_SecondSIGINT_KillsWhatLeftTheGroup", []Swap{{
		"case o.Kill && !g.told:", "case false:"}}},
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
	// The kinds of lock.
	{"a loss ends an elected run", "docs/command.md, kinds of lock", "cmd/zklock/run.go", "TestElect_Lost_CommandStartsAgainWhenElectedAgain", []Swap{{
		"if !lost || !o.elect || ctx.Err() != nil {", "if !lost || o.elect || ctx.Err() != nil {"}}},
	{"a run that was told to end stands again", "docs/command.md, signals", "cmd/zklock/run.go", "TestElect_ToldToEndAndLost_DoesNotStandAgain", []Swap{{
		"if !lost || !o.elect || ctx.Err() != nil {", "if !lost || !o.elect {"}}},
	{"who is told to end in a term forgets it", "docs/command.md, signals", "cmd/zklock/run.go", "TestElect_ToldToEndAndLost_DoesNotStandAgain", []Swap{{
		"if ends(s) && s != syscall.SIGHUP {", "if false && s != syscall.SIGHUP {"}}},
	{"the guardian of a lost term stays", "I7", "cmd/zklock/run.go", "TestElect_Lost_CommandStartsAgainWhenElectedAgain", []Swap{{
		"\t\tt.dismiss()\n\t\tt.dismiss = func() {}\n", "\t\tt.dismiss = func() {}\n"}}},
	{"what lost terms left is not reaped", "I7", "cmd/zklock/supervise_unix.go", "TestElect_WhatIsLeft_IsReaped", []Swap{{
		"for guardianProcess.heirs {", "for false {"}}},
	{"the next wait for the leadership is without limit", "docs/command.md, kinds of lock", "cmd/zklock/run.go", "TestElect_Lost_WaitGoesForTheNextCandidatureToo", []Swap{{
		"\t\tstop()\n\t\twctx, stop = o.waiting(ctx)\n", "\t\tstop()\n\t\twctx, stop = context.WithCancel(ctx)\n"}}},
	{"between two terms nothing suspends zklock", "docs/command.md, signals", "cmd/zklock/run.go", "TestElect_BetweenTerms_CanBeSuspended", []Swap{{
		"\t\t\tsuspendedBy(s)\n", ""}}},
	{"a path of another recipe is taken", "docs/command.md, kinds of lock", "cmd/zklock/run.go", "TestRun_PathOfAnotherRecipe_IsRefused", []Swap{{
		"if err := o.checkPath(wctx, t.s); err != nil {", "if err := o.checkPath(wctx, t.s); false {"}}},
	{"a folder called leases makes a semaphore", "docs/command.md, kinds of lock", "cmd/zklock/recipe.go", "TestRun_PathOfAnotherRecipe_IsRefused", []Swap{{
		"return modeOf(name) != modePermit })", "return false })"}}},
	{"shared runs exclude each other", "docs/command.md, kinds of lock", "cmd/zklock/recipe.go", "TestRun_Shared_ReadersRunTogether_AndExcludeOthers", []Swap{{
		"m.ReadLock(), participants(", "m.WriteLock(), participants("}}},
	{"one permit is as good as several", "docs/command.md, kinds of lock", "cmd/zklock/recipe.go", "TestRun_Semaphore_AtMostNPermitsAreInUse", []Swap{{
		"sem.Permits(o.permits)", "sem.Permits(1)"}}},
	{"a reader behind a writer holds, to ls", "docs/command.md, ls", "cmd/zklock/recipe.go", "TestQueueOf_WhoHolds", []Swap{{
		"\t\t\tfree = false\n", "\t\t\tfree = true\n"}}},
	{"all leases are of holders, to ls", "docs/command.md, ls", "cmd/zklock/recipe.go", "TestWithoutLimit_WhoHolds", []Swap{{
		"if i > 0 && len(queued) > 0 {", "if i < 0 && len(queued) > 0 {"}}},
	{"leases that wait stand where they were made", "docs/operating.md", "cmd/zklock/waiting.go", "TestLookAt_Semaphore_OurPlace", []Swap{{
		"l.ours.token = min(l.ours.token, p.Token)", "_ = p.Token"}}},

	{"the guardian has no threads before", "docs/command.md, the promise", "cmd/zklock/guardian_unix.go", "TestOutlives_GuardianHasItsThreads", []Swap{{
		"\tstartThreads()\n", ""}}},
}
