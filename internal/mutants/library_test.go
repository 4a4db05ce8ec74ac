package mutants

// mutant is a plausible mistake in the library.
type mutant struct {
	name    string
	promise string // or the row of the fault matrix, or of Curator's history
	file    string // from the repository's root
	tests   string // that find it, each of them, with a bar between
	swaps   []Swap
}

var library = []mutant{
	// The order of the queue, and the end of its counter (queue.go, root.go).
	{"a node past the counter's end is granted", "I1, F34", "internal/queue/queue.go", "TestPlaceOf|TestVirtual_SequenceEnd_NobodyIsGranted", []Swap{{
		"return m.Seq < 0 || m.Seq >= counterEnd }", "return m.Seq < 0 }"}}},
	{"a negative number in the list is like any other", "I1, F34", "internal/queue/queue.go", "TestPlaceOf|TestVirtual_SequenceEnd_NegativeNumber_NobodyIsGranted", []Swap{{
		"if m.Seq < 0 || mine.PastTheEnd() {", "if mine.PastTheEnd() {"}}},
	{"another node with our number is behind us", "I1, F35", "internal/queue/queue.go", "TestPlaceOf|TestPlaceOf_RandomQueues_OneFront", []Swap{{
		"isTwin = isTwin || m.Seq == mine.Seq", "_ = isTwin"}}},
	{"another node with our number is ahead of us", "I8, F35", "internal/queue/queue.go", "TestPlaceOf|TestPlaceOf_RandomQueues_OneFront", []Swap{
		{"isTwin = isTwin || m.Seq == mine.Seq", "_ = isTwin"},
		{"if m.Seq >= mine.Seq {", "if m.Seq > mine.Seq {"}}},
	{"names are compared as text", "I1, F36", "internal/queue/queue.go", "TestPlaceOf", []Swap{{
		"if m.Seq >= mine.Seq {", "if m.Name >= mine.Name {"}}},
	{"everybody watches the first in the queue", "I8, F40", "internal/queue/queue.go", "TestPlaceOf|TestVirtual_Release_WakesOneWaiter", []Swap{{
		"case predecessor.Name == \"\" || m.Seq > predecessor.Seq:", "case predecessor.Name == \"\" || m.Seq < predecessor.Seq:"}}},
	{"ErrSequenceExhausted comes before the empty root has gone", "F34", "acquire.go", "TestVirtual_SequenceEnd_NobodyIsGranted", []Swap{{
		"if restarted != nil && errors.Is(", "if false && errors.Is("}}},

	// The rule by which an event grants (inFrontNow).
	{"rule: the predecessor need not have been the front", "I1", "internal/queue/queue.go", "TestInFrontNow|TestInFrontNow_EachClause|TestVirtual_WaiterInTheMiddleGivesUp_NobodyIsGranted", []Swap{{
		"if k.ahead != 1 ||", "if"}}},
	{"rule: nothing can come in the predecessor's place", "I1, R73", "internal/queue/queue.go", "TestInFrontNow|TestInFrontNow_EachClause|TestVirtual_WriterTakesTheReadLock_NobodyIsGrantedBesideIt", []Swap{{
		"|| k.replaced ||", "||"}}},
	{"rule: any event of the predecessor grants", "I1, F31, R22", "internal/queue/queue.go", "TestInFrontNow|TestInFrontNow_EachClause|TestVirtual_SpuriousEvents", []Swap{{
		"|| !k.deleted {", "{"}}},
	{"rule: a predecessor of our own session is like any other", "I3", "internal/queue/queue.go", "TestInFrontNow|TestInFrontNow_EachClause", []Swap{{
		"if k.owner == k.session {", "if false {"}}},
	{"rule: the watch on our own node may be restored", "I3", "internal/queue/queue.go", "TestInFrontNow|TestInFrontNow_EachClause|TestVirtual_OwnWatchNotRestored_NeverGrants", []Swap{{
		"|| k.ownConn != k.conn ||", "||"}}},
	{"rule: the watch on the predecessor may be restored", "I3", "internal/queue/queue.go", "TestInFrontNow|TestInFrontNow_EachClause|TestVirtual_PredecessorsWatchRestored_IsGrantedByAList", []Swap{{
		"|| k.aheadConn != k.conn {", "{"}}},
	{"rule: an event of our own node does not matter", "I3", "internal/queue/queue.go", "TestInFrontNow|TestInFrontNow_EachClause", []Swap{{
		"if k.ownFired {", "if false {"}}},

	// The walk to the front, and the grant (walk.go, attempt.go).
	{"a list from before a lost create counts as ours", "I8, R55", "internal/queue/walk.go", "TestVirtual_CreateCutInFlight_KeepsItsPlace", []Swap{{
		"if early { // the list", "if early && false { // the list"}}},
	{"whoever is gone when it is to be watched was the front", "I1, R55", "internal/queue/walk.go", "TestVirtual_PredecessorGoneWhenAsked|TestWalk", []Swap{{
		"\t\tw.Next, w.aheadConn = ToAwait, conn\n", "\t\tw.Next, w.aheadConn, w.Ahead = ToAwait, conn, 1\n"}}},
	{"a waiter sleeps through a reconnect", "F22, F30", "internal/queue/walk.go", "TestVirtual_WatchesNotRestored_ListsAgain", []Swap{{
		"if conn != 0 && conn != w.listConn {", "if conn != 0 && conn != w.listConn && false {"}}},
	{"grant: our own node may go at the last moment", "I3", "attempt.go", "TestGrant_OwnNodeDeletedInBetween_QueuesAgain", []Swap{{
		"if own := a.onOwn; own != nil && own.hasFired() && own.event == zk.EventNodeDeleted {", "if false {"}}},
	{"grant: the session may be over", "I3, R57", "internal/link/holds.go", "TestGrant_SessionOver_GrantsNothing", []Swap{{
		"\terr = z.mu.cause\n", ""}}},
	{"grant: no look at the lease after a long wait", "I5", "internal/link/holds.go", "TestVirtual_LongWait_LeaseIsRenewedBeforeTheGrant", []Swap{{
		"ok = err == nil && z.mu.lease.Grants(now)", "ok = err == nil"}}},
	{"a waiter that is told to fail queues in the next session", "R72", "acquire.go", "TestVirtual_SessionEndsAfterTheNode_FailsIfToldTo|TestAttempt_SessionEndsJustBeforeTheGrant_FailsIfToldTo", []Swap{{
		"\t\tif err := e.PauseUnder(a.ctx, backoff.Next()); err != nil {\n\t\t\treturn err\n\t\t}\n\t\tif _, err := e.WaitAttached(a.ctx); err != nil {", "\t\t_ = e.PauseUnder(a.ctx, backoff.Next())\n\t\tif e, err = attachedEra(a.ctx, a.link); err != nil {"}}},

	// Passing the turn within a session (TurnAfter).
	{"turn: the next node is not checked", "I1, I3", "internal/nodes/reaper.go", "TestVirtual_Turn_NodeDeleted_IsNotPassed", []Swap{{
		"{Op: wire.OpCheck, Path: w.Node, Version: -1}", "{Op: wire.OpCheck, Path: x.node, Version: -1}"}}},
	{"turn: a second try does not check", "I1, F9", "internal/nodes/reaper.go", "TestVirtual_Turn_RetryChecksToo", []Swap{{
		"\t\tvar ended bool\n", "\t\tif w != nil {\n\t\t\t_, err = x.r.z.Ask(context.Background(), wire.OpDelete, wire.PathVersionRequest{Path: x.node, Version: -1})\n\t\t\tif a = (tap.Answer{}); err == nil {\n\t\t\t\tw.Tell(queue.TurnIsYours)\n\t\t\t}\n\t\t\tw = nil\n\t\t}\n\t\tvar ended bool\n"}}},
	{"turn: a waiter that gives up passes it", "I1", "internal/nodes/reaper.go", "TestVirtual_Turn_WaiterGivesUp_PassesNothing", []Swap{{
		"return r.begin(nodes[0], nil, func() *Waiter { return nil }, nodes[1:]...)", "return r.begin(nodes[0], nil, func() *Waiter { return r.nodes.next(nodes[0], queue.Rule{Markers: queue.Markers}) }, nodes[1:]...)"}}},
	{"turn: it is passed before the answer", "I1, I3", "internal/nodes/reaper.go", "TestVirtual_Turn_NodeDeleted_IsNotPassed", []Swap{{
		"\tw := next()\n", "\tw := next()\n\tif w != nil {\n\t\tw.Tell(queue.TurnIsYours)\n\t}\n"}}},
	{"turn: to one who sees another queue", "I1", "internal/nodes/turn.go", "TestVirtual_Turn_OtherQueuePattern_IsNotPassed", []Swap{{
		"if !w.skipped && w.rule.SeesAs(rule) {", "if !w.skipped {"}}},
	{"turn: to be told that the predecessor is gone is enough", "I1", "internal/queue/walk.go", "TestWalk|TestVirtual_Turn_WaiterGivesUp_PassesNothing", []Swap{{
		"\tcase TurnIsYours:\n", "\tcase TurnIsYours, TurnUnknown:\n"}}},
	{"turn: passed to one who has several predecessors", "I1, F35", "internal/queue/walk.go", "TestWalk", []Swap{{
		"ok && !w.Tied {", "ok {"}}},
	{"turn: nobody looks after those who wait for it", "F24", "watcher.go", "TestVirtual_Turn_OwnNodeDeleted_IsSeen", []Swap{{
		"range w.nodes.Waiting() {", "range w.nodes.Waiting()[:0] {"}}},
	{"turn: those behind a node that cannot be deleted wait for its release", "I8, R25", "internal/nodes/reaper.go", "TestVirtual_Turn_ReleaseRefused_SomebodyDeletesTheNode", []Swap{{
		"\t\t\tx.r.nodes.stays(n)\n", "_ = n\n"}}},

	// Readers and writers (rule.go, downgrade.go).
	{"readers wait for writers only", "I1", "internal/queue/rule.go", "TestPlaceOf_ReadersAndWriters|TestVirtual_ReadWrite_WhoHoldsBesideWhom", []Swap{{
		"!IsReader(ahead.Name) }", "is(ahead.Name, WriteName) }"}}},
	{"readers wait for readers", "I8", "internal/queue/rule.go", "TestPlaceOf_ReadersAndWriters|TestVirtual_ReadWrite_OneQueue", []Swap{{
		"return !r.IsShared() || !IsReader(ahead.Name) }", "return true }"}}},
	{"nobody comes in a writer's place", "I1, R73", "internal/queue/rule.go", "TestPlaceOf|TestPlaceOf_ReadersAndWriters|TestVirtual_Downgrade_KeepsTheQueueOut|TestVirtual_WriterTakesTheReadLock_NobodyIsGrantedBesideIt", []Swap{{
		"\"__lock__\", ReadName) ||", "\"__lock__\", ReadName, WriteName) ||"}}},
	{"a reader passes the turn", "I1", "internal/queue/rule.go", "TestRule_PassesTurn|TestVirtual_ReadWrite_WriterWaitsForAllReaders", []Swap{{
		"return !r.IsShared() && !downgraded }", "return !downgraded }"}}},
	{"a writer that has read passes the turn", "I1, R73", "internal/queue/rule.go", "TestRule_PassesTurn|TestVirtual_Downgrade_KeepsTheQueueOut", []Swap{{
		"return !r.IsShared() && !downgraded }", "return !r.IsShared() }"}}},
	{"readers watch the one ahead of the writer", "I8", "internal/queue/queue.go", "TestPlaceOf_ReadersAndWriters", []Swap{{
		"if !p.Tied && !rule.IsShared() {", "if !p.Tied {"}}},
	{"whoever is ahead of a reader holds", "the error's Holder", "internal/queue/queue.go", "TestPlaceOf_ReadersAndWriters|TestVirtual_ReadWrite_ErrorNamesTheHolder", []Swap{{
		"p.Holds = lowest.Seq == predecessor.Seq && !p.Tied", "_, p.Holds = lowest, p.Ahead == 1"}}},
	{"downgrade: the writer's node is not checked", "I1", "downgrade.go", "TestVirtual_Downgrade_WritersNodeGone_IsTold", []Swap{{
		"{Op: wire.OpCheck, Path: w.node, Version: -1}", "{Op: wire.OpCheck, Path: w.root.path, Version: -1}"}}},
	{"downgrade: a node that an earlier try made is an error", "F3", "downgrade.go", "TestVirtual_Downgrade_AnswerLost|TestVirtual_Downgrade_ReadsAgain|TestVirtual_Downgrade_GivenUp", []Swap{{
		"if errors.Is(err, zk.ErrNodeExists) {", "if false {"}}},
	{"downgrade: its token is another than the writer's", "I1", "downgrade.go", "TestVirtual_Downgrade_KeepsTheQueueOut", []Swap{{
		"token: w.token,", "token: w.token + 1,"}}},
	{"downgrade: the reader's node goes when nobody reads", "I4", "downgrade.go", "TestVirtual_Downgrade_KeepsTheQueueOut", []Swap{{
		"needed := down.byWriter || down.reader != nil", "needed := down.reader != nil"}}},
	{"downgrade: the reader's node goes when nobody writes", "I1, R73", "downgrade.go", "TestVirtual_Downgrade_KeepsTheQueueOut|TestVirtual_ReadWrite_RandomFaults", []Swap{{
		"needed := down.byWriter || down.reader != nil", "needed := down.byWriter"}}},
	{"downgrade: the reader's node does not wait for the writer's", "I4", "downgrade.go", "TestVirtual_Downgrade_WritersNodeGoesFirst", []Swap{{
		"reaper.EraseAfter(down.after, down.node)", "reaper.EraseAfter(nil, down.node)"}}},
	{"downgrade: a lost write hold keeps the reader's node", "I4, F24", "loss.go", "TestVirtual_Downgrade_WritersNodeDeleted_NobodyReads", []Swap{{
		"\td.leaveDowngrade(after)\n", "\t_ = after\n"}}},
	{"downgrade: a read lock that was taken away is taken again", "I3, F24", "lockdata.go", "TestVirtual_Downgrade_ReadersNodeTakenAway", []Swap{{
		"case d.down.lost != nil:", "case false:"}}},
	{"downgrade: also near the end of the counter", "F34", "lockdata.go", "TestVirtual_Downgrade_NearTheCountersEnd_IsRefused", []Swap{{
		"case d.root.nearTheEnd(d.node):", "case false:"}}},
	{"downgrade: Release waits for each of two nodes", "I6", "hold.go", "TestVirtual_Downgrade_ReleaseIsBounded", []Swap{{
		"\t\t\ti++\n", "\t\t\ti++\n\t\t\tr.end, ctxEnded, lastTry, p = e.Clock.Now().Add(grace), p.ctx.Done(), nil, &respite{ctx: p.ctx}\n"}}},
	{"downgrade: the last read takes the next one's node along", "I1", "downgrade.go", "TestLeaveDowngrade_TheNextReaderStays", []Swap{{
		"\tcase down.reader:\n", "\tdefault:\n"}}},

	// Sequencers, and the context that ends before the lease (sequencer.go, ending.go).
	{"sequencer: the transaction does not matter", "I1", "sequencer.go", "TestSequencer_Verdict|TestVirtual_CheckSequencer_OneLeaseOfSeveralIsGone", []Swap{{
		"case checked.err != nil || node.err != nil:", "case node.err != nil:"}}},
	{"sequencer: a lost answer says nothing against the hold", "F10", "sequencer.go", "TestSequencer_Verdict|TestVirtual_CheckSequencer_AnswerLost", []Swap{{
		"		case f.err != nil:\n			return unknown(f.err)\n", ""}}},
	{"sequencer: an answer of another server will do", "F12", "sequencer.go", "TestSequencer_Verdict", []Swap{{
		"if f.conn != checked.conn {", "if false {"}}},
	{"sequencer: the transaction checks the root", "I1, F12", "sequencer.go", "TestVirtual_CheckSequencer_OneLeaseOfSeveralIsGone", []Swap{{
		"wire.MultiOp{Op: wire.OpCheck, Path: node, Version: -1}", "wire.MultiOp{Op: wire.OpCheck, Path: parentOf(node), Version: -1}"}}},
	{"sequencer: the transaction checks the first lease", "I1, F24", "sequencer.go", "TestSequencer_NodesOfPermits|TestVirtual_CheckSequencer_OneLeaseOfSeveralIsGone", []Swap{{
		"i < max(1, q.Permits)", "i < 1"}}},
	{"sequencer: the check asks for the node as the holder has left it", "F24", "sequencer.go", "TestCheckSequencer_EachKindOfHold", []Swap{{
		"Path: node, Version: -1}", "Path: node, Version: 0}"}}},
	{"sequencer: reads alone", "F12", "sequencer.go", "TestVirtual_CheckSequencer_NotFromMemoryOfAServer|TestVirtual_CheckSequencer_Costs", []Swap{{
		"checked := tap.NewRequest(wire.OpMulti, checks, func(a tap.Answer) {\n		f := found{conn: a.Conn, err: answer.ErrOf(a)}\n		if f.err == nil {", "checked := tap.NewRequest(wire.OpExists, wire.PathWatchRequest{Path: q.Node}, func(a tap.Answer) {\n		f := found{conn: a.Conn, err: answer.ErrOf(a)}\n		if false {"}}},
	{"sequencer: any root will do", "F26", "sequencer.go", "TestSequencer_Verdict|TestVirtual_CheckSequencer_AnotherRoot", []Swap{{
		"case root.czxid != q.Root:", "case root.err != nil:"}}},
	{"sequencer: the token is believed", "I1", "sequencer.go", "TestSequencer_Verdict|TestVirtual_CheckSequencer_ChangedText", []Swap{{
		"case q.Token > node.czxid, q.Token < node.czxid && q.Mode == modeExclusive:", "case false:"}}},
	{"sequencer: of any lock", "I1", "sequencer.go", "TestCheckSequencer_EachKindOfHold|TestVirtual_CheckSequencer_Chroot", []Swap{{
		"case q.Path != s.chroot+path:", "case false:"}}},
	{"sequencer: its words may come in any way", "bad input", "sequencer.go", "TestParseSequencer_Rubbish", []Swap{{
		", q.words() != words:", ":"}}},
	{"sequencer: a node of any kind", "bad input", "sequencer.go", "TestParseSequencer_Rubbish", []Swap{{
		"	return q, q.nodes() != nil\n", "	return q, true\n"}}},
	{"sequencer: the reader beside a writer has no root", "F26", "downgrade.go", "TestVirtual_CheckSequencer_WriterReads", []Swap{{
		"rootCzxid: w.rootCzxid, ", ""}}},
	{"sequencer: the root of a semaphore's queue", "F26", "room.go", "TestCheckSequencer_EachKindOfHold", []Swap{{
		"	a.rootCzxid = now.list.Root\n", ""}}},
	{"ending: a renewed lease ends it", "F15", "ending.go", "TestVirtual_Ending_RenewedLease_DoesNotEnd", []Swap{{
		"c.Context.Err() == nil {\n		c.timer.Reset(min(left, lease.Heartbeat(c.h.d.e.Timeout())))\n", "c.Context.Err() == nil {\n		time.AfterFunc(left, func() { c.cancel(fmt.Errorf(\"%w, %v\", ErrEnding, lease.Heartbeat(0))) })\n"}}},
	{"ending: with the lease, not before", "I5", "ending.go", "TestVirtual_Ending_Outage_EndsBeforeTheLease|TestVirtual_Ending_Suspend_FirstLook|TestVirtual_Ending_MarginTooLarge_EndsAtOnce", []Swap{{
		"Sub(e.Clock.Now()) - c.margin; left <= 0 {", "Sub(e.Clock.Now()); left <= 0 {"}}},
	{"ending: Err does not look at the clock", "F18", "ending.go", "TestVirtual_Ending_Suspend_FirstLook", []Swap{{
		"	c.endIfLate()\n	return c.Context.Err()", "	return c.Context.Err()"}}},
	{"ending: the function ends nothing", "I7", "ending.go", "TestVirtual_Ending_Cancel", []Swap{{
		"func() { c.cancel(nil) }", "func() {}"}}},

	{"two candidates of one owner lead together", "I1", "election.go", "TestVirtual_Campaign_OwnersAreTheirOwn", []Swap{{
		"e.m.enterAs(ctx, asker{owner: NewOwner(\"\")}, ", "e.m.enter(ctx, "}}},
	{"an upgrade waits for itself", "I6", "lockdata.go", "TestVirtual_ReadWrite_Reentry", []Swap{{
		"return nil, nil, ErrUpgrade", "return nil, nil, nil"}}},
	{"an owner queues for both sides at a time", "I2", "lockdata.go", "TestVirtual_ReadWrite_OneOwnerQueuesForOneSideAtATime", []Swap{{
		"return nil, d.acquiring, nil", "return nil, nil, nil"}}},
	{"a Mutex's hold is a permission for the read/write lock of its path", "R67", "hold.go", "TestVirtual_ReadWrite_FanOutUnderAMutexOfThePath", []Swap{{
		"holdKey{table: t, root: root.path, mode: mode}", "holdKey{table: t, root: root.path}"}}},

	// The lock-delay (record.go, delay.go, mark.go).
	{"lock-delay: our own record is a grant", "I3, F24", "internal/queue/record.go", "TestRecordRead|TestVirtual_LockDelay_GrantUnanswered_NodeDeleted_IsNoGrant", []Swap{{
		"case r.Held == \"\", r.Held == r.Own:", "case r.Held == r.Own:\n\t\treturn w.anew(ToGrant)\n\tcase r.Held == \"\":"}}},
	{"lock-delay: many lock paths forget it", "I6", "lockroot.go", "TestVirtual_LockDelay_ManyPaths_IsNotForgotten", []Swap{{
		"n.gone == \"\" })", "true })"}}},
	{"delay: a record from before the proof counts", "F47", "internal/queue/record.go", "TestRecordRead", []Swap{{
		"	case r.Early:\n		w.Next = ToReadRecord\n", ""}}},
	{"delay: a record that a server lagging behind shows counts", "F47", "internal/queue/record.go", "TestRecordRead", []Swap{{
		"	case !isNews: ", "	case !isNews && false: "}}},
	{"delay: a turn needs no record", "F47", "internal/queue/walk.go", "TestVirtual_LockDelay_Turn_IsPassedAndRecorded|TestRecordRead", []Swap{{
		"		return w.front(0)\n", "		return w.anew(ToGrant)\n"}}},
	{"delay: nobody waits", "F47", "delay.go", "TestVirtual_LockDelay_HolderDisappears_NextWaits|TestVirtual_LockDelay_FrontDiesInTheDelay_NextWaits", []Swap{{
		"left > 0; left =", "left > 1<<62; left ="}}},
	{"delay: the words of others are replaced", "F47", "internal/queue/record.go", "TestRecord|TestVirtual_LockDelay_OtherData", []Swap{{
		"word != \"\" && !strings", "word == \"\" && !strings"}}},
	{"delay: data of somebody else is taken for ours", "F47", "internal/queue/record.go", "TestRecord|TestVirtual_LockDelay_OtherData", []Swap{{
		"			return \"\", false\n", "			return \"\", true\n"}}},
	{"delay: the grant's write does not check the node", "F47", "delay.go", "TestVirtual_LockDelay_NodeDeletedBeforeTheGrant_IsNotRecorded", []Swap{{
		"{Op: wire.OpCheck, Path: a.node, Version: -1}", "{Op: wire.OpCheck, Path: a.d.root.path, Version: -1}"}}},
	{"delay: it names no version", "F47", "delay.go", "TestVirtual_LockDelay_OtherData", []Swap{{
		"Data: []byte(r), Version: a.version}", "Data: []byte(r), Version: -1}"}}},
	{"delay: who gives up leaves its record", "F47", "lockroot.go", "TestVirtual_LockDelay_GivesUpDuringTheGrant_LeavesNoRecord", []Swap{{
		"	if mark != nil {\n		x = e.reaper.EraseMarked", "	if false {\n		x = e.reaper.EraseMarked"}}},
	{"delay: a release leaves its record", "F47", "downgrade.go", "TestVirtual_LockDelay_Release_NextIsGrantedAtOnce|TestVirtual_LockDelay_ReleaseThenClose_DelaysNobody", []Swap{{
		"d.down != nil, d.mark)", "d.down != nil, nil)"}}},
	{"delay: a release that meets a version conflict leaves its record", "F47", "internal/nodes/mark.go", "TestVirtual_LockDelay_OtherData", []Swap{{
		"		x.mark.IsKnown = false\n", "		x.mark = nil\n"}}},
	{"delay: a Session forgets its first look", "F47", "lockroot.go", "TestVirtual_LockDelay_ShortCalls_GetIn", []Swap{{
		"if note && n.gone != node {", "if note {"}}},
	{"delay: the root is made anew without its record", "F47", "lockroot.go", "TestVirtual_LockDelay_RootMadeAnew_KeepsTheRecord", []Swap{{
		"	if record != \"\" {\n		ops", "	if false {\n		ops"}}},
	{"delay: without WRITE there is none", "F47", "delay.go", "TestVirtual_LockDelay_NoWrite_Fails", []Swap{{
		"		err = answer.Denied(err, \"set\", \"WRITE\", root.path)\n", "		*w = w.RecordWritten(queue.IsThere)\n		return nil\n"}}},
	{"delay: a read/write lock takes it", "WithLockDelay", "mutex.go", "TestLockDelay_Refused", []Swap{{
		"		err = errDelayOfOthers\n", ""}}},

	// Making a node (fate.go, protection.go).
	{"a create whose answer was lost made nothing", "I2, F3", "internal/answer/fate.go", "TestFateOf|TestVirtual_CreateLost_IsAdopted", []Swap{{
		"case f == tap.NeverSent:", "case f == tap.NeverSent || f == tap.NoAnswer:"}}},
	{"a node of another session is adopted", "I3, R30", "protection.go", "TestVirtual_CreateLost_NodeIsOfAnotherSession_IsNotAdopted", []Swap{{
		"stat.EphemeralOwner == e.ID:", "true:"}}},
	{"the owner in the answer to a create is not checked", "I3, R31", "protection.go", "TestCreation_IsOurs", []Swap{{
		" && made.Stat.EphemeralOwner == c.e.ID", ""}}},
	{"no sync before the look", "I2, F4", "internal/nodes/list.go", "TestVirtual_CreateLost_NotCommittedYet_IsAdopted", []Swap{{
		"a, err := l.z.Ask(context.Background(), wire.OpSync, wire.PathRequest{Path: kind.root})", "var a tap.Answer\n\t\ta.Conn, err = l.z.WaitAttached(context.Background())"}}},
	{"an id is forgotten when the list that looks for it is refused", "I4, R74, F27", "protection.go", "TestVirtual_CreateLost_RootGivesNoRead_GoesWhenItDoes", []Swap{{
		"\t\t\te.reaper.NoteStray(c.root, c.id)\n\t\t\te.Log", "\t\t\te.Log"}}},
	{"a lost create is looked for again once only", "I4, R74, F2", "internal/nodes/strays.go", "TestVirtual_CreateLost_RootGivesNoRead_GoesWhenItDoes", []Swap{{
		"listed[root] = err == nil || errors.Is(err, zk.ErrNoNode)", "_, listed[root] = err, true"}}},
	{"creates are tried again without a pause", "I7, R25", "protection.go", "TestVirtual_CreateFailsForEver_BacksOff", []Swap{{
		"if try > 1 && !e.Pause(backoff.Next()) {", "if try > 1 && !e.Pause(0*backoff.Next()) {"}}},
	{"a create under way is forgotten when nobody waits", "I4", "protection.go", "TestVirtual_Call_Leaves", []Swap{{
		"\t\tcase a = <-c.answer:\n", "\t\tcase a = <-c.answer:\n\t\tcase <-c.wanted.Done():\n\t\t\treturn context.Cause(c.wanted)\n"}}},
	{"the token is the sequence number", "I1, R59", "protection.go", "TestVirtual_Token_GrowsAcrossLockRoots", []Swap{{
		"\t\t\tc.node, c.token = c.made.Path, c.made.Stat.Czxid\n", "\t\t\tc.node = c.made.Path\n\t\t\tc.token = int64(c.node[len(c.node)-1])\n"}}},
	{"what is throttled is refused", "F28", "internal/answer/answer.go", "TestVirtual_CreateUnclear_IsTriedAgain", []Swap{{
		"case wire.Throttled:\n\t\treturn NotNow", "case wire.Throttled:\n\t\treturn TurnedDown"}}},
	{"a lock root that is gone is an error", "F26, R5, R58", "attempt.go", "TestVirtual_LockRootDeleted_AtEveryRequest", []Swap{{
		"\tcase errors.Is(err, zk.ErrNoNode):\n\t\treturn queue.IsGone, nil", "\tcase errors.Is(err, zk.ErrNoNode):\n\t\treturn queue.IsGone, err"}}},

	// Deleting it (the reaper), and Release.
	{"the node of a waiter that gave up is left", "I4, R2", "acquire.go", "TestVirtual_WaiterInTheMiddleGivesUp_NobodyIsGranted", []Swap{{
		"\t\terr = a.giveUp(e, at.node, err, at.leases...)\n", ""}}},
	{"the reaper is off", "I4, R25", "internal/nodes/reaper.go", "TestVirtual_DeleteFails_IsTriedAgain", []Swap{{
		"\treturn false, true\n}\n\nfunc (x *Deletion) end(", "\tx.end(err)\n\treturn true, true\n}\n\nfunc (x *Deletion) end("}}},
	{"NoNode after an unanswered delete is a loss", "F10", "internal/nodes/reaper.go", "TestVirtual_ReplyToDeleteLost_ReleaseSucceeds", []Swap{{
		"noNode && !x.unanswered\n", "noNode\n"}}},
	{"NoNode is success always", "I5, F24", "internal/nodes/reaper.go", "TestVirtual_NodeDeletedBeforeTheRelease_IsLost|TestEraseAll_OneIsMissing_TheOthersGo", []Swap{{
		"x.missing = x.missing || noNode && !x.unanswered\n", "\n"}}},
	{"the node of a hold that ended without its session is left", "I4, F43", "internal/link/holds.go", "TestVirtual_ReadTakenFromAHeldNode_OnlyThatHoldEnds", []Swap{{
		"gone || told {", "gone || told && false {"}}},
	{"Release waits an outage out", "I6, R66, F44", "hold.go", "TestVirtual_ServersDead_ReleaseEndsWithTheLease|TestVirtual_ReleaseNotConfirmed_GoesOnInTheBackground", []Swap{{
		"end: max(d.e.LeaseEnd(), d.e.Clock.Now().Add(grace))", "end: d.e.LeaseEnd().Add(24 * time.Hour)"}}},
	{"a session that ends during a Release is a loss", "R70", "hold.go", "TestVirtual_ServersDead_ReleaseEndsWithTheLease|TestVirtual_ReleaseWhileAnotherHoldIsLost_IsNoLoss", []Swap{{
		"return fmt.Errorf(\"%w: %w; the node goes with its session\", ErrNotConfirmed, err)", "return lostBecause(err)"}}},

	// The lease (lease.go, era.go) and its heartbeat.
	{"any answered frame renews the lease", "I5, F12", "internal/lease/lease.go", "TestLease_QuorumLease|TestVirtual_HolderOnTheMinority_IsToldBeforeTheNextGrant", []Swap{{
		"\tif l.mode.singleServer {\n\t\tl.extend(f.Sent)\n", "\tif true {\n\t\tl.extend(f.Sent)\n"}}},
	{"the lease starts when the answer comes", "I5", "internal/tap/tap.go", "TestTap_AnswersAreAnchoredAtTheirSending", []Swap{{
		"\tt.sink.Answered(x.at, t.in.now)\n", "\tt.sink.Answered(t.in.now, t.in.now)\n"}}},
	{"a quorum operation vouches for frames just before it", "I5, F12", "internal/lease/lease.go", "TestLease_QuorumLease", []Swap{{
		"cutoff := sent.Add(-l.mode.leaderPing)", "cutoff := sent"}}},
	{"the last frame is taken, not the last but one", "I5", "internal/lease/lease.go", "TestLease_QuorumLease", []Swap{{
		"base = max(base, l.exchanges[i-1].Sent)", "base = max(base, l.exchanges[i].Sent)"}}},
	{"a failed multi is a quorum operation", "I5", "internal/tap/tap.go", "TestTap_QuorumOperations", []Swap{{
		"first.Int32() != int32(wire.OpError) && first.Err() == nil {", "first != nil {"}}},
	{"a shorter session timeout does not count at once", "I5, F38", "internal/lease/lease.go", "TestLease_TimeoutChangesOnAttachingAgain", []Swap{{
		"\tif shorter {\n", "\tif shorter && false {\n"}}},
	{"a longer timeout of a later server counts", "F45, I5", "internal/lease/lease.go", "TestLease_TimeoutChangesOnAttachingAgain", []Swap{{
		"if newSession || shorter {", "if true {"}}},
	{"the clock is the wall clock", "I5, F20", "internal/clock/clock.go", "TestClock_IgnoresTheWallClock", []Swap{{
		"d := time.Since(c.start)", "d := time.Now().Round(0).Sub(c.start.Round(0))"}}},
	{"the clock stands still in suspend", "I5, F21", "internal/clock/clock.go", "TestClock_CountsSuspend|TestVirtual_Suspend_IsLostAtTheFirstLook", []Swap{{
		"Instant(d + c.suspended() - c.suspended0)", "Instant(d)"}}},
	{"a late answer brings a lease back that had ended", "I5, F18", "internal/link/holds.go", "TestVirtual_AnswerAfterTheLeasesEnd_RenewsNothing", []Swap{{
		"\tz.LoseIfLate(f.Answered)\n", ""}}},
	{"an error code in a ping's answer is overlooked", "F39", "internal/tap/tap.go", "TestTap_PingWithAnErrorCode_IsRefusal|TestVirtual_PingRefused_IsLost", []Swap{{
		"\tcase code != wire.OK:\n\t\tt.sink.Refused", "\tcase false:\n\t\tt.sink.Refused"}}},
	{"heartbeats pile up", "I5, I7", "internal/link/beat.go", "TestVirtual_HeartbeatNotAnswered_IsTheOnlyOne", []Swap{{
		"\tif z.mu.beating == conn {\n\t\tz.mu.Unlock()\n\t\treturn false\n\t}\n", ""}}},
	{"one node without READ ends the heartbeat of all", "R68, F43", "internal/link/era.go", "TestVirtual_ReadTakenFromAHeldNode_OnlyThatHoldEnds|TestVirtual_MutexWithoutRead_EndsNoOtherHold", []Swap{{
		"\tif answer.IsRefusal(err) && i >= 0 {", "\tif errors.Is(err, zk.ErrNoNode) && i >= 0 {"}}},

	// The state of the session, and being told.
	{"Err looks at a flag, not at the clock", "I5, F18", "hold.go", "TestVirtual_Suspend_IsLostAtTheFirstLook", []Swap{{
		"\th.d.loseIfLate()\n\th.d.table.mu.Lock()\n", "\th.d.table.mu.Lock()\n"}}},
	{"SessionExpired is taken for a reconnect", "I5, F8", "internal/link/report.go", "TestVirtual_SessionExpires_IsToldAtOnce", []Swap{{
		"l.dials.Forgive()\n", "l.dials.Forgive()\n\t\told = nil\n"}}},
	{"a new session id is taken for a reconnect", "I5, F37", "internal/link/report.go", "TestLink_AnotherSessionID_IsAnExpiry", []Swap{{
		"case old == nil || old.ID != resp.SessionID:", "case old == nil:"}}},
	{"the connection that reassures falsely is kept", "F12, R41", "internal/link/link.go", "TestVirtual_NoQuorum_IsLostAndLeft", []Swap{{
		"\tif t != nil {\n\t\tt.Cut()\n\t}\n", "\t_ = t\n"}}},
	{"Lost is told twice", "R40", "internal/link/state.go", "TestStateMachine_Next|TestStateMachine_RandomEvents_LostOncePerSession", []Swap{{
		"&& m.state != Lost &&", "&&"}}},

	// Watches and lists.
	{"a restored watch counts as one set on this connection", "I1, I3, F31", "watcher.go", "TestVirtual_PredecessorsWatchRestored_IsGrantedByAList", []Swap{{
		"func (w *watcher) restored(them []*watch, a tap.Answer) {\n", "func (w *watcher) restored(them []*watch, a tap.Answer) {\n\tfor _, on := range them {\n\t\ton.conn = a.Conn\n\t}\n"}}},
	{"an answer counts for another connection than its own", "I1, I3, F6", "internal/tap/tap.go", "TestRequest_IsAnswered_ClientSeesNothing", []Swap{{
		"Conn: t.Seq, Zxid: h.Zxid", "Conn: t.Seq + 1, Zxid: h.Zxid"}}},
	{"no re-check", "F30", "watcher.go", "TestVirtual_EventLost_IsGrantedByTheRecheck|TestVirtual_OwnEventLost_QueuesAgain", []Swap{{
		"for unawaited := 1; w.z.Pause(w.z.Timeout()); unawaited++ {", "for unawaited := 1; w.z.Pause(24 * time.Hour); unawaited++ {"}, {
		"import (\n\t\"context\"\n\t\"errors\"\n", "import (\n\t\"context\"\n\t\"errors\"\n\t\"time\"\n"}}},
	{"a re-check that finds a node gone is its deletion", "I3, F30", "watcher.go", "TestVirtual_BothEventsLost_NeverGrants", []Swap{{
		"on.event = zk.EventNotWatching", "on.event = zk.EventNodeDeleted"}}},
	{"each wait sets a watch of its own", "I7, R8", "watcher.go", "TestVirtual_WaitsTimeOut_ShareOneWatch", []Swap{{
		"if on := w.mu.watches[key]; on != nil {\n\t\tw.mu.Unlock()", "if on := w.mu.watches[key]; false && on != nil {\n\t\tw.mu.Unlock()"}}},
	{"each waiter lists for itself", "R50, R69, F40", "internal/nodes/list.go", "TestVirtual_CreatesLost_AreLookedForTogether", []Swap{{
		"\tq := l.mu.queues[kind]\n\tif q == nil {\n", "\tvar q *listQueue\n\tif q == nil {\n"}}},
	{"what the client sees counts for watches that are not restored", "R78", "internal/lastzxid/lastzxid.go", "TestConn_WatchesDoNotStandYet|TestWrap_SecondConnectionLostBeforeWatchesAreRestored", []Swap{{
		"if c.stand && c.latest > 0 {", "if c.latest > 0 {"}}},

	// Elections and those who look on (election.go, watcher.go).
	{"a leader that lost is not heard of again", "I5", "election.go", "TestVirtual_Campaign_CutOff_NeverTwoLeaders|TestVirtual_Campaign_LossSeenByTheRelease_StandsAgain", []Swap{{
		"if lost && ctx.Err() == nil &&", "if false && lost && ctx.Err() == nil &&"}}},
	{"a leader is not told of its loss", "I5", "hold.go", "TestVirtual_Campaign_CutOff_NeverTwoLeaders|TestVirtual_Election_RandomFaults_OneLeader", []Swap{{
		"\treturn false, f(work, h)\n", "\treturn false, f(ctx, h)\n"}}},
	{"the loss of another lock is one of the leadership", "I5", "election.go", "TestVirtual_Campaign_ReturnsWhatLeadReturns", []Swap{{
		"\tlost, err := hold.run(ctx, caller, lead)\n", "\tlost, err := hold.run(ctx, caller, lead)\n\tlost = lost || errors.Is(err, ErrLost)\n"}}},
	{"what a leader returns is swallowed", "I5", "hold.go", "TestVirtual_Campaign_ReturnsWhatLeadReturns|TestVirtual_Campaign_ReleaseNotConfirmed_IsAnError", []Swap{{
		"err = h.outcomeOf(work, err, end)", "err = h.outcomeOf(work, nil, end)"}}},
	{"after a loss and the end, the campaign forgets the leader's error", "I5", "election.go", "TestVirtual_Campaign_LossAndEnd_BothAreTold", []Swap{{
		"if lost && ctx.Err() == nil &&", "if lost &&"}}},
	{"leaders that lose again and again do not pause", "I7", "election.go", "TestVirtual_Campaign_LostAgainAndAgain_BacksOff", []Swap{{
		"<-time.After(backoff.Next()):", "<-time.After(0 * backoff.Next()):"}}},
	{"a leader that resigns gives up the lock and works on", "I1", "election.go", "TestVirtual_Resign_HandsOverInOrder|TestVirtual_Resign_DoesNotHang", []Swap{{
		"\tlost, err := hold.run(ctx, caller, lead)\n", "\tcontext.AfterFunc(ctx, func() { _ = hold.Release(context.Background()) })\n\tlost, err := hold.run(ctx, caller, lead)\n"}}},
	{"a release that Resign asks for has half a second", "I4, R66", "election.go", "TestVirtual_Resign_SlowRelease_IsWaitedFor", []Swap{{
		"hold.run(ctx, caller, lead)", "hold.run(ctx, ctx, lead)"}}},
	{"Resign does not wait for the release", "I1", "election.go", "TestVirtual_Resign_HandsOverInOrder", []Swap{{
		"\tcase <-c.ended:\n", "\tcase <-time.After(time.Second):\n\t\treturn nil\n\tcase <-c.ended:\n"}}},
	{"one Election stands twice", "I2", "election.go", "TestVirtual_Election_BadInput", []Swap{{
		"if e.mu.campaign != nil {", "if false {"}}},
	{"an election does not see nodes of another recipe", "I1", "election.go", "TestVirtual_Election_PathOfAnotherRecipe", []Swap{{
		"\tif check {\n", "\tif check && false {\n"}}},
	{"a latch's successor lists", "I8", "internal/queue/rule.go", "TestVirtual_Election_LatchNodes", []Swap{{
		"is(ahead, MutexName, LatchName, ", "is(ahead, MutexName, "}}},
	{"Leader fails if the leader goes meanwhile", "CURATOR-358", "election.go", "TestVirtual_Leader_GoesMeanwhile", []Swap{{
		"if leader, err = readParticipant(ctx, z, node); !errors.Is(err, zk.ErrNoNode) {", "if leader, err = readParticipant(ctx, z, node); true {"}}},
	{"observers hear of all who queue", "I8", "election.go", "TestVirtual_Observe_Costs", []Swap{{
		"if on, err = z.watches.watch(ctx, node); err == nil {", "z.watches.start(watchKey{root, wire.OpGetChildren2})\n\t\tif on, err = z.watches.watch(ctx, node); err == nil {"}}},
	{"an observer does not look after it has set its watch", "F31", "election.go", "TestVirtual_Observe_LeaderComesMeanwhile", []Swap{{
		"\t\t\tcontinue\n\t\t}\n\t\tif on, err", "\t\t\treturn Participant{}, on, nil\n\t\t}\n\t\tif on, err"}}},
	{"an observer shows the beginning of a name", "R15", "election.go", "TestVirtual_Observe_EachLeaderOnce", []Swap{{
		"if int(on.stat.DataLength) > len(on.data) {", "if false {"}}},
	{"an observer shows a leader for each event", "F31", "election.go", "TestVirtual_Observe_EachLeaderOnce", []Swap{{
		"if (isFirst || leader.Node != last) && !yield(leader, nil) {", "if (isFirst || leader.Node != last || true) && !yield(leader, nil) {"}}},
	{"a path's end does not wake those who wait for its children", "F26", "watcher.go", "TestVirtual_Observe_EachLeaderOnce", []Swap{{
		"if event != zk.EventNodeDeleted && ofChildren", "if ofChildren"}}},
	{"watches on children are restored as others", "F22", "watcher.go", "TestVirtual_Observe_CutOff", []Swap{{
		"paths = &ask.Child", "paths = &ask.Data"}}},
	{"nobody looks after the watches of observers", "F30", "watcher.go", "TestVirtual_Observe_EventLost", []Swap{{
		"return now.Cversion != w.stat.Cversion", "return false"}}},

	// A silent server (silence.go).
	{"a silent server is never left", "F41, I5", "internal/lease/silence.go", "TestVirtual_FollowerGoesDark_NoHoldIsLost", []Swap{{
		"\tif now < ends {", "\tif now < ends || true {"}}},
	{"servers that are all slow are left again and again", "F16, R50", "internal/lease/silence.go", "TestVirtual_AllServersSlow_AreNotLeftAgainAndAgain|TestVirtual_ServersStallNowAndThen_AreNotLeftEachTime", []Swap{{
		"s.left, s.last = s.left+1, now", "s.last = now"}}},
	{"a pause of the process is taken for a server's silence", "F18, F41", "internal/lease/silence.go", "TestVirtual_PausedProcess_DoesNotLeaveItsServer", []Swap{{
		"if now.Sub(ends) > lateLook && s.doubted != ends {", "if s.doubted < 0 {"}}},
	{"an attempt that is not in the queue yet waits for nobody", "I6, F41", "era.go", "TestVirtual_ServerGoesDark_WhileTheRootIsMade", []Swap{{
		"e.attempts.Load() > 0 || e.reaper.IsErasing()", "e.watches.queued() > 0 || e.reaper.IsErasing()"}}},

	// Sessions that were given up, or should be over.
	{"a session without an answer goes on", "F23, F51, I6", "internal/link/holds.go", "TestVirtual_ServerRestartsOlder_WaiterQueuesAgain|TestVirtual_OneWay_WaiterCutOff_NextIsGranted", []Swap{{
		"z.mu.heard.Add(lease.Unheard(", "z.mu.heard.Add(1000 * lease.Unheard("}}},
	{"a place is lost in a short outage", "F22", "internal/lease/silence.go", "TestVirtual_ServerAway_WaiterKeepsItsPlace", []Swap{{
		"return timeout + IdleRead(timeout) + time.Second", "return timeout"}}},
	{"the close of a given-up session waits for an answer", "F51", "internal/expire/expire.go", "TestSession_NothingHeard_IsEnded|TestVirtual_OneWay_LeaderCutOff_NextLeads", []Swap{{
		"\tframes := wire.Frame(session)\n", "\tif _, err := conn.Write(wire.Frame(session)); err != nil || read(conn, new(wire.ConnectResponse)) != nil {\n\t\treturn false, errors.New(\"no answer\")\n\t}\n\tvar frames []byte\n"}}},
	{"a Session that is not attached closes without a word", "F51, I4", "internal/link/link.go", "TestVirtual_OneWay_Close_EndsTheSession", []Swap{{
		"if z != nil && conn == 0 && !z.leftToExpire() {", "if false && conn == 0 && !z.leftToExpire() {"}}},
	{"a session that was left alone is not asked again", "F51", "internal/link/report.go", "TestVirtual_ServerAwayForLong_WaiterQueuesAgain", []Swap{{
		"isAnswered := l.endApart(z, c.addr, until)\n\tfor", "isAnswered := true\n\tfor"}}},
	{"a session that was given up is taken up again", "I5", "internal/link/report.go", "TestLink_GivenUpSession_IsRefused", []Swap{{
		"case old.IsOver(): // given up", "case false: // given up"}}},
	{"the lease ends and the ZooKeeper session does not", "I5, R41, R65", "internal/link/report.go", "TestLink_GivenUpSession_IsEnded|TestVirtual_LeaseEnds_SessionIsEndedAtTheServers", []Swap{{
		"\treturn tap.EndIt\n", "\treturn tap.Attach\n"}}},
	{"a given-up session is touched for ever", "R65", "internal/link/report.go", "TestLink_GivenUpSession_IsEnded|TestVirtual_GivenUpSession_ServersHangUp_IsLeftToExpire", []Swap{{
		"case z.leftToExpire():", "case false && z.leftToExpire():"}}},
	{"a given-up session is ended without credentials", "R65, F42", "internal/expire/expire.go", "TestTap_GivenUpSession_IsEndedAndTheClientToldSo", []Swap{{
		"\tfor _, a := range auths {\n", "\tfor _, a := range auths[:0] {\n"}}},

	// Requests of ours between the client's (the tap).
	{"what was handed to the network was never sent", "I2, F3", "internal/tap/tap.go", "TestRequest_Fates|TestVirtual_CreateLost_IsAdopted", []Swap{{
		"\t\tif r.written {\n", "\t\tif false {\n"}}},
	{"a create kept from a session that is over is sent in the next", "I2, F5", "internal/link/link.go", "TestLink_RequestOfAnotherSession_IsNotSent", []Swap{{
		"l.mu.state.state.Attached() && l.mu.era == z\n", "l.mu.state.state.Attached()\n"}}},

	// Owners, handles and calls (lockdata.go, mutex.go, hold.go).
	{"owners of one Session are one owner", "I1, I2", "lockdata.go", "TestVirtual_TwoOwnersOfOneSession_ExcludeEachOther", []Swap{{
		"key = lockKey{root.path, root.mode(), NewOwner(\"\")}", "key = lockKey{root.path, root.mode(), Owner{}}"}}},
	{"an owner leaks from one lock into another", "I1, R67", "hold.go", "TestVirtual_FanOutUnderAnOuterHold_ExcludesInTheInnerLock", []Swap{{
		"by := asker{owner: ownerSet(ctx)}\n", "var by asker\n\tby.owner, _ = OwnerFrom(ctx)\n"}}},
	{"the first release gives the lock back", "I1, R3", "lockdata.go", "TestLockTable_ReleaseCountsHandles", []Swap{{
		"last = len(d.handles) == 0", "last = true"}}},
	{"a second release counts again", "I1, R63", "lockdata.go", "TestLockTable_ReleaseCountsHandles", []Swap{{
		"\tif h.end != nil {\n\t\treturn false, false, nil\n\t}\n", ""}}},
	{"a lost lock is re-entered", "I1", "lockdata.go", "TestLockTable_LostHoldIsNotReentered", []Swap{{
		"\tcase d.lost != nil:\n\t\treturn nil, d.lost\n", "\tcase false:\n"}}},
	{"local ownership ends after the delete", "R17", "lockdata.go", "TestLockTable_AcquireDuringTheLastRelease_StartsAfresh", []Swap{{
		"\tif last {\n\t\tt.forgetLocked(d)\n", "\tif last {\n"}}},
	{"a call that leaves at the grant has left and is granted", "F33", "lockdata.go", "TestLockTable_LeaveAfterTheGrant_IsGranted", []Swap{{
		"\tif a.call == nil {\n\t\treturn false\n\t}\n", ""}}},
	{"an owner's calls are served at once", "I2", "lockdata.go", "TestLockTable_OneCallAtATime", []Swap{{
		"return d.acquiring, h.busy()", "return d.acquiring, nil"}}},
	{"the context of the call bounds the acquisition", "I6, R75, R76", "mutex.go", "TestVirtual_Call_ItsContextGoesNoFurther", []Swap{{
		"a.link, a.opts = m.s.link, &m.opts\n", "a.link, a.opts, a.ctx = m.s.link, &m.opts, ctx\n"}}},
	{"a context's cause is taken for the server's answer", "R75", "internal/link/era.go", "TestVirtual_Participants_ContextsCauseIsNoAnswer|TestVirtual_Revoke_ContextsCauseIsNoAnswer", []Swap{{
		"return tap.Answer{}, ErrCtxEnded", "return tap.Answer{}, context.Cause(ctx)"}}},
	{"the cap on lock nodes drifts", "I7, F29", "internal/nodes/turn.go", "TestVirtual_MaxLockNodes_DoesNotDrift", []Swap{{
		"\t\ts.o.mu.seats--\n", ""}}},

	// Several locks at once (multi.go).
	{"multi: the locks are taken in the caller's order", "R86", "multi.go", "TestVirtual_Multi_OneOrder|TestVirtual_Multi_OppositeOrders_DoNotDeadlock", []Swap{{
		"return cmp.Compare(a.root.path, b.root.path)", "return 0"}}},
	{"multi: the locks are ordered by the paths below their chroots", "R86", "multi.go", "TestVirtual_Multi_OneOrder", []Swap{{
		"cmp.Compare(a.root.path, b.root.path)", "cmp.Compare(a.root.given, b.root.given)"}}},
	{"multi: one lock may be given through two Sessions", "R86", "multi.go", "TestVirtual_NewMulti_BadInput", []Swap{{
		"l.root.path == m.locks[i-1].root.path {", "l == m.locks[i-1] {"}}},
	{"multi: a context with a hold that sorts later is let in", "R86", "multi.go", "TestVirtual_Multi_ContextOutOfOrder_IsRefused", []Swap{{
		"\t\tif h == nil {\n\t\t\tbreak", "\t\tif h == nil || true {\n\t\t\tbreak"}}},
	{"multi: a context with a hold of the path through another Session is let in", "R86", "hold.go", "TestVirtual_Multi_ContextOutOfOrder_IsRefused", []Swap{{
		"held > k.root || held == k.root && (h.d.table != k.table || h.d.key.mode != k.mode || k.mode != queue.LeaseName)", "held > k.root || held == k.root && (h.d.key.mode != k.mode && k.mode != queue.LeaseName)"}}},
	{"multi: nobody watches what is held while the next is waited for", "I5, R86, F50", "multi.go", "TestVirtual_Multi_LossWhileItWaits", []Swap{{
		"enter(work, op, left)", "enter(context.WithValue(ctx, ownerKey{}, ownerSet(work)), op, left)"}}},
	{"multi: no look at the others after the last grant", "I5, R86, F50", "multi.go", "TestVirtual_Multi_LossSeenAtTheGrant|TestVirtual_Multi_LossWhileItWaits", []Swap{{
		"err = cmp.Or(hold.Err(), err)", "_ = hold"}}},
	{"multi: the context compares the clock with the last lease only", "I5, F18", "hold.go", "TestVirtual_Multi_Suspend_IsLostAtTheFirstLook", []Swap{{
		"\tif c.outer != nil {", "\tif c.outer != nil && false {"}}},
	{"multi: each lock has the whole time-out", "R86", "multi.go", "TestVirtual_Multi_OneBudget", []Swap{{
		"left = wait - time.Since(began)", "left = wait + 0*time.Since(began)"}}},
	{"multi: what was got is kept if the next is not got", "I4, R86", "multi.go", "TestVirtual_Multi_CancelInTheMiddle|TestVirtual_Multi_OneBudget|TestVirtual_Multi_RandomFaults", []Swap{{
		"return nil, outcomeOf(holds, work, err, releaseAll(p, holds))", "return nil, err"}}},
	{"multi: the releases after a cancel have half a second more", "I6", "multi.go", "TestVirtual_Multi_CancelInTheMiddle", []Swap{{
		"\tdefer context.AfterFunc(ctx, func() { p.left() })()\n", ""}}},
	{"multi: released in the order of the grants", "R86", "multi.go", "TestVirtual_Multi_ReleasedInReverse|TestVirtual_Multi_Do_Panic", []Swap{{
		"for i, hold := range slices.Backward(holds) {\n\t\tall[i]", "for i, hold := range holds {\n\t\tall[i]"}}},
	{"multi: a panic keeps the locks", "I4, R86", "multi.go", "TestVirtual_Multi_Do_Panic", []Swap{{
		"\tdefer func() {\n\t\tdone()\n\t\terr = outcomeOf(h.holds, work, err, h.release(ctx))\n\t}()\n\treturn f(work, h)",
		"\terr = f(work, h)\n\tdone()\n\treturn outcomeOf(h.holds, work, err, h.release(ctx))"}}},
	{"multi: only one of the releases' errors is told", "R86", "multi.go", "TestVirtual_Multi_ErrorsOfEachMember", []Swap{{
		"errors.Join(h.release(ctx)...)", "h.release(ctx)[0]"}}},
	{"multi: a release is taken for a loss", "R86", "multi.go", "TestVirtual_Multi_OneOrder", []Swap{{
		"if !errors.Is(context.Cause(work), ErrNotHeld) {", "{"}, {"\t\tstop()\n\t\tdone()\n", "\t\t_ = stop\n\t\tdone()\n"}}},
}
