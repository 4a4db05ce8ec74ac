package mutants

// The semaphore: its rule, and the code that creates, watches and deletes leases.
var semaphore = []mutant{
	{"permits: by the number of leases", "I6", "internal/queue", "TestPositionOfLeases|TestVirtual_Semaphore_QueueNodeDeleted_OrderDecides", []Swap{{
		"PositionOfLeases", "if m.Seq < last {", "if true {"}}},
	{"permits: one more than there are", "I1", "internal/queue", "TestPositionOfLeases|TestVirtual_Semaphore_AsManyHoldAsThereArePermits|TestExplorePermits", []Swap{{
		"PositionOfLeases", "case p.Blockers+len(mine) > limit:", "case p.Blockers+len(mine) > limit+1:"}}},
	{"permits: a part of the leases will do", "I3", "internal/queue", "TestPositionOfLeases|TestVirtual_Semaphore_LeaseDeletedInTheWait_QueuesAgain", []Swap{{
		"PositionOfLeases", "if found < len(mine) {", "if found == 0 {"}}},
	{"permits: past the end of the counter", "I1, F34", "internal/queue", "TestPositionOfLeases|TestVirtual_Semaphore_SequenceEnd", []Swap{{
		"PositionOfLeases", "if m.PastTheEnd() && (ours[m.Name] || m.Seq < 0) {", "if m.Seq < 0 {"}}},
	{"permits: nobody watches the limit", "F48", ".", "TestVirtual_SharedLimit_Zero_Pauses|TestVirtual_SharedLimit_BelowWhatIsWanted_Waits|TestVirtual_SimulationOfSemaphores", []Swap{{
		"permitAttempt.awaitCapacity", `if p.limit != "" {`, `if p.limit == "" {`}}},
	{"permits: a lost answer made nothing", "I4, F3", ".", "TestVirtual_Semaphore_AnswerLost_LeasesAreAdopted", []Swap{{
		"permitAttempt.resolveLeases", "found, err = e.FindMade(leases, id, false); err != nil", "_, err = e.FindMade(leases, id, false); err != nil"}}},
	{"permits: the transaction checks nothing", "I4", ".", "TestVirtual_Semaphore_TurnLost_NothingIsMade", []Swap{{
		"permits.request", "Op: wire.OpCheck, Path: queued,", "Op: wire.OpCheck, Path: \"/\","}}},
	{"permits: who gives up leaves its leases", "I4", ".", "TestVirtual_Semaphore_GivesUp_LeavesNothing|TestVirtual_Semaphore_Try", []Swap{{
		"attempt.giveUp", "a.node, a.held...", "a.node"}}},
	{"permits: the heartbeat checks the first lease", "I5, F24", "internal/link", "TestVirtual_Semaphore_LeaseDeleted_WholeHoldIsLost", []Swap{{
		"ZKSession.Hold", "for _, n := range more {", "for _, n := range more[:0] {"}}},
	{"permits: where one lease is missing, the others stay", "I4", "internal/node", "TestVirtual_Semaphore_LeaseDeletedInTheWait_QueuesAgain|TestDeleteAll_OneIsMissing_TheOthersGo", []Swap{{
		"Deletion.tried", "case noNode && n > 1:", "case noNode && n > 1 && false:"}}},
	{"permits: nobody looks at who uses the path", "I1", ".", "TestVirtual_Semaphore_PathOfAnotherRecipe_IsRefusedInEachSession", []Swap{{
		"permits.newState", "if !node.NotesOn[recipeNotes](root.Root).fits {", "if false {"}}},
	{"permits: the session that made found leases is not asked for", "I3, R30", ".", "TestVirtual_Semaphore_AnswerLost_LeasesOfAnotherSession_AreNotAdopted", []Swap{{
		"permitAttempt.areOurs", "case err == nil && stat.EphemeralOwner == a.e.ID:", "case err == nil && stat.EphemeralOwner != -1:"}}},
	{"permits: who takes none from the queue counts nobody in it", "I8", ".", "TestVirtual_Semaphore_Straight_OvertakesNobody", []Swap{{
		"permitAttempt.takeIfCapacity", "(now.queue == nil || queue.HaveCapacity(a.leases-k, ahead, k, n))", "(now.queue == nil || ahead+n+k > 0)"}}},
	{"permits: leases that were made in vain stay", "I4, I6", ".", "TestVirtual_Semaphore_Straight_InVain_LeavesNothing|TestVirtual_Semaphore_BesideOneThatCounts_NoLeaseWaits", []Swap{{
		"permitAttempt.withdraw", "if len(a.held) == 0 {", "if len(a.held) > 0 {"}}},
	{"permits: leases that come late and check nothing stay", "I4, F2", ".", "TestVirtual_Semaphore_Straight_AnswerLost", []Swap{{
		"permitAttempt.resolveLeases", "		e.Reaper.NoteOrphan(leases.Path(), id, false)\n		return nil, errRequeue\n", "		return nil, errRequeue\n"}}},
	{"permits: an orphan is identified by its id alone", "I4, R105", "internal/queue", "TestOrphansIn|TestExplorePermits_Denied|TestVirtual_Semaphore_AnswerLost_NoRead_QueueIsListed_LeasesGo|TestVirtual_Semaphore_RequestLost_NoDelete_LateCopyLeaksNothing|TestVirtual_SimulationOfSemaphores", []Swap{{
		"OrphansIn", "if _, ok := orphans[Orphan{root, id}]; ok {", "if func() bool { for o := range orphans { if o.ID == id { if o.Root != root { delete(orphans, o) }; return true } }; return false }() {"}}},
	{"permits: a session that ends meanwhile passes for a grant", "I6", ".", "TestVirtual_Semaphore_Straight_SessionEndsMeanwhile", []Swap{{
		"permits.beforeQueue", "	err = at.withdraw(err)\n", "	if err = at.withdraw(err); e.HasEnded() {\n		return nil\n	}\n"}}},
	{"permits: a refused withdrawal goes to the queue", "I2, I6", ".", "TestVirtual_Semaphore_Straight_WithdrawalRefused_ReportsIt", []Swap{{
		"permits.beforeQueue", " || len(at.held) > 0 {", " {"}}},
}
