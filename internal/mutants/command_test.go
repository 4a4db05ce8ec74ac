package mutants

// supervisor is the package of the command's supervisor, in the command's module.
const supervisor = "cmd/zklock/internal/supervise"

// The command's supervisor. The program that its tests run is their own binary.
var command = []mutant{
	// Every process of the command ends with the hold.
	{"orphans go to process 1", "docs/command.md, the promise", supervisor, "TestOutlives_Nothing|TestLeftovers_End_AllIsEndedAndNamed", []Swap{{
		"becomeSubreaper", "return seesDescendants() && unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == nil", "return seesDescendants()"}}},
	{"nothing is stopped before it is killed", "docs/command.md, the promise", supervisor, "TestOutlives_NobodyActsOnTheDeathOfAnother", []Swap{{
		"tree.kill", "for still := 0; still < 2 &&", "for still := 2; still < 2 &&"}}},
	{"what moves up during a look is not asked to end", "docs/command.md, the promise", supervisor, "TestLeftovers_End_ParentDiesMeanwhile_ChildIsAskedToEnd", []Swap{{
		"tree.terminate", "for range 2 { // one may move up while we look: ", "for range 1 { // "}}},
	{"a second SIGINT kills the group alone", "docs/command.md", supervisor, "TestRun_SecondSIGINT_KillsWhatLeftTheGroup", []Swap{{
		"guardian.take", "case o.Kill && !g.told:", "case false:"}}},
	{"a number is taken for the process that it was", "docs/command.md, the promise", supervisor, "TestTree_NumberIsAnothersNow_IsNotTouched", []Swap{{
		"tree.lookAt", "case p.parent != parent.pid, parent.signal(0) == unix.ESRCH:", "case false:"}}},
	{"zklock does not inherit from its guardian", "docs/command.md, the promise", supervisor, "TestOutlives_Nothing", []Swap{{
		"supervisor.guardianGone", "if s.runner.child.heirs {", "if false {"}}},
	{"process 1 releases when its guardian is killed", "docs/command.md, the promise", supervisor, "TestOutlives_GuardianOfProcess1Killed_AllEndsBeforeTheSession", []Swap{{
		"supervisor.guardianGone", "if os.Getpid() == 1 {", "if false {"}}},
}
