package mutants

// Packages of the command's module: its supervisor, and the guard.
const (
	supervisor = "cmd/zklock/internal/supervise"
	guard      = "cmd/zklock/internal/watch"
)

// The command's supervisor. The program that its tests run is their own binary.
var command = []mutant{
	// Every process of the command ends with the hold.
	{"orphans go to process 1", "docs/command.md, the promise", supervisor, "TestOutlives_Nothing|TestLeftovers_End_AllIsEndedAndNamed", []Swap{{
		"becomeSubreaper", "return seesDescendants() && unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == nil", "return seesDescendants()"}}},
	{"nothing is stopped before it is killed", "docs/command.md, the promise", supervisor, "TestOutlives_NobodyActsOnTheDeathOfAnother", []Swap{{
		"tree.kill", "for still := 0; still < 2 &&", "for still := 2; still < 2 &&"}}},
	{"what moves up during a look is not asked to end", "docs/command.md, the promise", supervisor, "TestTree_ScannedTwice_ParentEndsMeanwhile_ItsChildIsVisited", []Swap{{
		"tree.lookTwice", "for range 2 {", "for range 1 {"}}},
	{"a second SIGINT kills the group alone", "docs/command.md", supervisor, "TestRun_SecondSIGINT_KillsWhatLeftTheGroup", []Swap{{
		"guardian.take", "case o.Kill && !g.told:", "case false:"}}},
	{"a number is taken for the process that it was", "docs/command.md, the promise", supervisor, "TestTree_NumberIsAnothersNow_IsNotTouched", []Swap{{
		"tree.lookAt", "case p.parent != parent.pid, parent.signal(0) == unix.ESRCH:", "case false:"}}},
	{"zklock does not inherit from its guardian", "docs/command.md, the promise", supervisor, "TestOutlives_Nothing", []Swap{{
		"supervisor.guardianGone", "if s.runner.child.heirs {", "if false {"}}},
	{"process 1 releases when its guardian is killed", "docs/command.md, the promise", supervisor, "TestOutlives_GuardianOfProcess1Killed_AllEndsBeforeTheSession", []Swap{{
		"supervisor.guardianGone", "if os.Getpid() == 1 {", "if false {"}}},

	// The evidence on which the guard ends a session.
	{"the end of the connection is the death of the process", "F58", guard, "TestGuard_ConnectionEndsWhileTheProcessLives_NothingIsEnded|TestGuard_ProcessReplacesItself_NothingIsEndedBeforeItsEnd", []Swap{{
		"Guard.serve", "if err == nil && !p.awaitDeath() {", "if false {"}}},
	{"a process whose main thread has ended is dead", "F58", guard, "TestGuard_MainThreadHasEnded_NothingIsEnded", []Swap{{
		"peer.awaitDeath", "return err == nil && raw.Read(readable) == nil", `for _, _ = raw, err; ; unix.Nanosleep(&unix.Timespec{Nsec: 1e6}, nil) {
			var pid int
			var name, state string
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
			_, _ = fmt.Sscan(string(b), &pid, &name, &state)
			if len(b) == 0 || state == "Z" {
				return true
			}
		}`}}},
}
