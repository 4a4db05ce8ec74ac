package mutants

// The semaphore's: its rule, and what makes, watches and deletes leases.
var semaphore = []mutant{
	{"permits: by the number of leases", "I6", "internal/queue/permits.go", "TestPlaceOfLeases|TestVirtual_Semaphore_QueueNodeDeleted_OrderDecides", []Swap{{
		"		if m.Seq < last.Seq {\n", "		if true {\n"}}},
	{"permits: one more than there are", "I1", "internal/queue/permits.go", "TestPlaceOfLeases|TestVirtual_Semaphore_AsManyHoldAsThereArePermits|TestExplorePermits", []Swap{{
		"case p.Ahead+len(mine) > limit:", "case p.Ahead+len(mine) > limit+1:"}}},
	{"permits: any room is enough for many", "I1", "internal/queue/permits.go", "TestPlaceOfLeases|TestVirtual_Semaphore_AllOrNone|TestVirtual_Semaphore_RandomFaults|TestExplorePermits", []Swap{{
		"case p.Ahead+len(mine) > limit:", "case p.Ahead+1 > limit:"}}},
	{"permits: a part of the leases will do", "I3", "internal/queue/permits.go", "TestPlaceOfLeases|TestVirtual_Semaphore_LeaseDeletedInTheWait_QueuesAgain", []Swap{{
		"if found < len(mine) {", "if found == 0 {"}}},
	{"permits: past the end of the counter", "I1, F34", "internal/queue/permits.go", "TestPlaceOfLeases|TestVirtual_Semaphore_SequenceEnd", []Swap{{
		"if m.PastTheEnd() && (ours[m.Name] || m.Seq < 0) {", "if m.Seq < 0 {"}}},
	{"permits: one with our number is behind us", "F35", "internal/queue/permits.go", "TestPlaceOfLeases", []Swap{{
		"isTwin = isTwin || numbers[m.Seq]", "_ = isTwin"}}},
	{"permits: a lost answer is asked for again", "I4, F2", "permits.go", "TestVirtual_Semaphore_RequestLost_LateCopyLeaksNothing", []Swap{{
		"	x := e.reaper.Erase(a.node)\n	select {\n	case <-x.Done:\n", "	x := e.reaper.Erase(a.node)\n	if len(id) > 0 {\n		return nil, errRequeue\n	}\n	select {\n	case <-x.Done:\n"}}},
	{"permits: a lost answer made nothing", "I4, F3", "permits.go", "TestVirtual_Semaphore_AnswerLost_LeasesAreAdopted", []Swap{{
		"	if found, err = a.findLeases(id); err != nil {\n		return nil, err\n	}\n	switch {", "	if _, err = a.findLeases(id); err != nil {\n		return nil, err\n	}\n	switch {"}}},
	{"permits: the transaction checks nothing", "I4", "permits.go", "TestVirtual_Semaphore_TurnLost_NothingIsMade", []Swap{{
		"{{Op: wire.OpCheck, Path: a.node, Version: -1}}", "{{Op: wire.OpCheck, Path: \"/\", Version: -1}}"}}},
	{"permits: a waiter does not watch the leases", "I8", "room.go", "TestVirtual_Semaphore_AsManyHoldAsThereArePermits", []Swap{{
		"		case <-on.fired:\n", "		case <-limitFired:\n"}}},
	{"permits: a waiter does not watch the limit", "I8", "room.go", "TestVirtual_SharedLimit_Changes", []Swap{{
		"		limitFired = onLimit.fired\n", "		_ = onLimit.fired\n"}}},
	{"permits: a waiter sleeps through a reconnect with what it saw before", "F22", "room.go", "TestVirtual_Semaphore_Reconnects_LooksAgain", []Swap{{
		"if err != nil || conn != 0 && conn != seen {", "if err != nil || conn != 0 && conn != seen && false {"}}},
	{"permits: the first look takes a watch", "I8", "room.go", "TestVirtual_Semaphore_Budget", []Swap{{
		"	for watching := false; ; {\n", "	for watching := true; ; {\n"}}},
	{"permits: the look goes out after the answer", "I8", "permits.go", "TestVirtual_Semaphore_Budget|TestVirtual_SharedLimit_Budget", []Swap{{
		"			return &early, nil\n", "			return nil, nil\n"}}},
	{"permits: who wants more than the limit waits on", "I6", "limit.go", "TestVirtual_SharedLimit_BelowWhatIsWanted", []Swap{{
		"	case p.k <= n:\n", "	case p.k <= n || n > 0:\n"}}},
	{"permits: rubbish is a limit", "I1", "limit.go", "TestVirtual_SharedLimit_Rubbish", []Swap{{
		"int32(binary.BigEndian.Uint32(data)); n >= 0 {", "int32(binary.BigEndian.Uint32(data)); n >= -1 {"}}},
	{"permits: a try fails behind one who is just taking", "I8", "room.go", "TestVirtual_Semaphore_Try", []Swap{{
		"case len(queue.Members(leases.Names, p.leases.rule.Markers))+p.k > n:", "case n > 0:"}}},
	{"permits: a try waits for room", "I6", "room.go", "TestVirtual_Semaphore_Try", []Swap{{
		"	if !a.d.table.behind(a.acquisition, at) {\n		return ErrNotAcquired\n	}\n", "	a.d.table.behind(a.acquisition, at)\n"}}},
	{"permits: they are re-entered", "I1", "mutex.go", "TestVirtual_Semaphore_NotReentrant", []Swap{{
		"	if m.root.permits != nil {\n		return asker{} // nobody", "	if m.root.permits != nil {\n		return askerIn(ctx, &m.s.locks, &m.root) // nobody"}}},
	{"permits: they let into a mutex", "I1", "lockroot.go", "TestVirtual_Semaphore_NotReentrant", []Swap{{
		"		return queue.LeaseName\n", "		return r.rule.Name\n"}}},
	{"permits: the path of a mutex will do", "bad input", "lockroot.go", "TestVirtual_Semaphore_BadInput", []Swap{{
		"		if err := r.permits.checkPath(ctx, z, r); err != nil {", "		if err := r.permits.checkPath(ctx, z, r); err != nil && false {"}}},
	{"permits: the queue is not left after the grant", "I8", "permits.go", "TestVirtual_Semaphore_AsManyHoldAsThereArePermits", []Swap{{
		"		a.d.root.handOver(a.e, a.node, false, nil)\n", ""}}},
	{"permits: who gives up leaves its leases", "I4", "acquire.go", "TestVirtual_Semaphore_GivesUp_LeavesNothing|TestVirtual_Semaphore_Try", []Swap{{
		"err = a.giveUp(e, at.node, err, at.leases...)", "err = a.giveUp(e, at.node, err)"}}},
	{"permits: the heartbeat checks the first lease", "I5, F24", "internal/link/holds.go", "TestVirtual_Semaphore_LeaseDeleted_WholeHoldIsLost", []Swap{{
		"		for _, n := range more {\n", "		for _, n := range more[:0] {\n"}}},
	{"permits: the others stay when one lease is lost", "I4, F24", "loss.go", "TestVirtual_Semaphore_LeaseDeleted_WholeHoldIsLost", []Swap{{
		"		d.e.reaper.EraseAll(others)\n", ""}}},
	{"permits: a loss of the second lease says nothing", "I5, F24", "loss.go", "TestVirtual_Semaphore_LeaseDeleted_WholeHoldIsLost", []Swap{{
		"if !slices.Contains(d.held, node) ||", "if d.node != node ||"}}},
	{"permits: a release deletes the first lease", "I4", "downgrade.go", "TestVirtual_Semaphore_AllOrNone|TestVirtual_Semaphore_ReleaseLost_AllGo", []Swap{{
		"d.root.release(d.e, held, ", "d.root.release(d.e, held[:1], "}}},
	{"permits: where one lease is missing, the others stay", "I4", "internal/nodes/reaper.go", "TestVirtual_Semaphore_LeaseDeletedInTheWait_QueuesAgain|TestEraseAll_OneIsMissing_TheOthersGo", []Swap{{
		"	case noNode && n > 1: // nothing was deleted\n", "	case noNode && n > 1 && x.OK:\n"}}},
	{"permits: of several strays one is deleted", "I4, R74", "internal/nodes/strays.go", "TestVirtual_Semaphore_AnswerLost_NoRead_GoesWhenItDoes", []Swap{{
		"				if _, stray := r.mu.strays[id]; stray {\n", "				if _, stray := r.mu.strays[id]; stray {\n					delete(r.mu.strays, id)\n"}}},
	{"permits: Checks has the first", "fencing", "hold.go", "TestVirtual_Semaphore_Checks", []Swap{{
		"range h.granted().held {", "range h.granted().held[:1] {"}}},
	{"permits: who waits for room holds", "Participants", "semaphore.go", "TestVirtual_Semaphore_Participants", []Swap{{
		"		if end <= limit {\n", "		if i < limit {\n"}}},
	{"permits: the session that made found leases is not asked for", "I3, R30", "permits.go", "TestVirtual_Semaphore_AnswerLost_LeasesOfAnotherSession_AreNotAdopted", []Swap{{
		"case err == nil && stat.EphemeralOwner == a.e.ID:", "case err == nil && stat.EphemeralOwner != -1:"}}},
}
