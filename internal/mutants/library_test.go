package mutants

// mutant is a plausible mistake in the library.
type mutant struct {
	name    string
	promise string // or the row of the fault matrix, or of Curator's history
	file    string // in the root package
	tests   string // that find it, each of them, with a bar between
	swaps   []Swap
}

var library = []mutant{
	// A create whose answer is lost.
	{"no look for the node after a lost create", "I2, F3", "protection.go", "TestVirtual_CreateLost_IsAdopted", []Swap{{
		"\t\tif err := c.resolve(); c.node != \"\" || err != nil {\n\t\t\treturn err\n\t\t}\n", ""}}},
	{"a node of another session is adopted", "I3, R30", "protection.go", "TestVirtual_CreateLost_NodeIsOfAnotherSession_IsNotAdopted", []Swap{{
		"stat.EphemeralOwner == z.id:", "true:"}}},
	{"no sync before the look", "I2, F4", "list.go", "TestVirtual_CreateLost_NotCommittedYet_IsAdopted", []Swap{{
		"a, err := l.z.ask(context.Background(), wire.OpSync, wire.PathRequest{Path: kind.root})", "var a tap.Answer\n\t\ta.Conn, err = l.z.waitAttached(context.Background())"}}},
	{"a lost create is looked for only where it may be listed", "I4, F27", "protection.go", "TestCreateLost_RootGivesNoRead_LeavesNothing", []Swap{{
		"if errors.Is(err, zk.ErrNoAuth) && r.z", "if false && r.z"}}},
	{"a lost create whose node cannot be read is looked for again and again", "I4, I6, F27", "protection.go", "TestVirtual_CreateLost_NodeGivesNoRead_LeavesNothing", []Swap{{
		"case isRefusal(err): // the node gives no READ", "case false: // the node gives no READ"}}},
	{"an old server is asked again for what it closes the connection", "F27", "list.go", "TestVirtual_CreateLost_OldServer_IsAskedOnce", []Swap{{
		"l.z.ownListsFailed.Store(mostOwnListsFailed)", "l.z.ownListsFailed.Store(0)"}}},
	{"a create kept from a session that is over is sent in the next", "I2, F5", "link.go", "TestLink_RequestOfAnotherSession_IsNotSent", []Swap{{
		"l.mu.state.state.Attached() && l.mu.era.zkSession == z\n", "l.mu.state.state.Attached()\n"}}},
	{"a create applied late is not looked for again", "I4, F2", "protection.go", "TestVirtual_CreateAppliedLate_IsDeleted", []Swap{{
		"if r.z.pause(r.z.timeout() / 3) {", "if false {"}}},
	{"a list that shows a create applied late says nothing", "I4, F2", "protection.go", "TestVirtual_CreateAppliedLate_IsDeleted", []Swap{{
		"if len(r.mu.strays) > 0 {", "if false {"}}},
	{"creates are tried again without a pause", "I7, R25", "protection.go", "TestVirtual_CreateFailsForEver_BacksOff", []Swap{{
		"if c.try > 1 && !z.pause(c.wait.next()) {", "if c.try > 1 && !z.pause(0*c.wait.next()) {"}}},
	{"creates are tried again although nobody waits", "I6, I7", "protection.go", "TestVirtual_CreateFailsForEver_BacksOff", []Swap{{
		"if c.try > 0 && c.wanted.Err() != nil {", "if false {"}}},
	{"a list from before a lost create counts as ours", "I8, R55", "walk.go", "TestVirtual_CreateCutInFlight_KeepsItsPlace", []Swap{{
		"if early { // it went out", "if early && false { // it went out"}}},

	{"a create whose answer was lost made nothing", "I2, F3", "fate.go", "TestFateOf|TestVirtual_CreateLost_IsAdopted", []Swap{{
		"case f == tap.NeverSent:", "case f == tap.NeverSent || f == tap.NoAnswer:"}}},
	{"what is throttled is refused", "F28", "errors.go", "TestVirtual_CreateUnclear_IsTriedAgain", []Swap{{
		"case wire.Throttled:\n\t\treturn notNow", "case wire.Throttled:\n\t\treturn turnedDown"}}},
	{"of a quota nobody knows whether it let the create pass", "F28", "errors.go", "TestVirtual_CreateRefused_ErrorSaysWhich", []Swap{{
		"case wire.Unimplemented, wire.QuotaExceeded, wire.RuntimeInconsistency,", "case wire.Unimplemented, wire.RuntimeInconsistency,"}}},
	{"an error is told as a number", "F28", "internal/wire/code.go", "TestVirtual_CreateRefused_ErrorSaysWhich", []Swap{{
		"return name + \" (\" + strconv.Itoa(int(c)) + \")\"", "return name[:0] + strconv.Itoa(int(c))"}}},
	{"a node whose token cannot be read is left", "I4, R2", "protection.go", "TestVirtual_RequestFailsAfterTheCreate_LeavesNothing", []Swap{{
		"\t\t\tcase isRefusal(err):\n\t\t\t\tr.erase(c.made)\n", "\t\t\tcase isRefusal(err):\n"}}},
	{"watches that fail are set again without a pause", "R25, F28", "attempt.go", "TestVirtual_RequestFailsAfterTheCreate_LeavesNothing", []Swap{{
		"return notTold, a.pause(a.e, a.retry.next())", "return notTold, a.pause(a.e, time.Millisecond)"}}},
	{"failures of long ago hold a waiter up that polls", "I8, F27", "attempt.go", "TestVirtual_Polling_ListsAreRetriedSoon", []Swap{{
		"poll\n\t\ta.retry = newBackoff()\n", "poll\n"}}},
	{"a waiter whose own node cannot be watched waits", "I3", "walk.go", "TestWalk", []Swap{{
		"case r == isThere && w.next == toWatchOwn:", "case w.next == toWatchOwn:"}}},
	{"a lock root that is gone is an error", "F26, R58", "attempt.go", "TestVirtual_LockRootDeleted_AtEveryRequest", []Swap{{
		"\tcase errors.Is(err, zk.ErrNoNode):\n\t\treturn isGone, nil", "\tcase errors.Is(err, zk.ErrNoNode):\n\t\treturn isGone, err"}}},
	{"parents are made once", "F26, R5", "root.go", "TestVirtual_LockRootDeleted_AtEveryRequest", []Swap{{
		"if i := strings.LastIndexByte(path, '/'); i > 0 {", "if i := strings.LastIndexByte(path, '/'); i > 0 && len(path) == len(r.path) {"}}},
	{"a delete goes past the chroot", "R26, I4", "protection.go", "TestVirtual_Chroot_CleansUp", []Swap{{
		"wire.OpDelete, wire.PathVersionRequest{Path: x.node, Version: -1}", "wire.OpDelete, wire.PathVersionRequest{Path: strings.TrimPrefix(x.node, \"/team/app\"), Version: -1}"}}},

	// Deleting.
	{"the reaper is off", "I4, R25", "protection.go", "TestVirtual_DeleteFails_IsTriedAgain", []Swap{{
		"\treturn false, true\n}\n\nfunc (x *erasure) end(", "\tx.end(err)\n\treturn true, true\n}\n\nfunc (x *erasure) end("}}},
	{"NoNode after an unanswered delete is a loss", "F10", "protection.go", "TestVirtual_ReplyToDeleteLost_ReleaseSucceeds", []Swap{{
		"if x.ok = x.unanswered; x.ok {", "if x.ok = false; x.ok {"}}},
	{"NoNode is success always", "I5, F24", "protection.go", "TestVirtual_NodeDeletedBeforeTheRelease_IsLost", []Swap{{
		"if x.ok = x.unanswered; x.ok {", "if x.ok = true; x.ok {"}}},
	{"release goes by the name's prefix", "I1, I8", "protection.go", "TestVirtual_Release_WakesOneWaiter", []Swap{{
		"\tif !r.z.carrier.send(r.z, first) {\n",
		"\tr.z.carrier.send(r.z, tap.NewRequest(wire.OpGetChildren2, wire.PathWatchRequest{Path: parentOf(node)}, func(a tap.Answer) {\n\t\tvar all wire.ChildrenStatResponse\n\t\t_ = a.Decode(&all)\n\t\tfor _, n := range all.Children {\n\t\t\tif strings.HasPrefix(n, protectedPrefix) {\n\t\t\t\tr.z.carrier.send(r.z, tap.NewRequest(wire.OpDelete, wire.PathVersionRequest{Path: parentOf(node) + \"/\" + n, Version: -1}, func(tap.Answer) {}))\n\t\t\t}\n\t\t}\n\t}))\n\tif !r.z.carrier.send(r.z, first) {\n"}}},
	{"the node of a waiter that gave up is left", "I4", "attempt.go", "TestVirtual_WaiterInTheMiddleGivesUp_NobodyIsGranted", []Swap{{
		"\t\ta.giveUp(a.e, node, err)\n", "\t\t_ = node\n"}}},

	// The clauses of the rule by which an event grants (inFrontNow), and of the grant after it.
	{"rule: the predecessor need not have been the front", "I1", "queue.go", "TestInFrontNow|TestInFrontNow_EachClause|TestVirtual_WaiterInTheMiddleGivesUp_NobodyIsGranted", []Swap{{
		"if k.ahead != 1 || k.disordered ||", "if k.disordered ||"}}},
	{"rule: suffixes past the counter's end order too", "I1, F34", "queue.go", "TestInFrontNow|TestInFrontNow_EachClause", []Swap{{
		"if k.ahead != 1 || k.disordered ||", "if k.ahead != 1 ||"}}},
	{"rule: any event of the predecessor grants", "I1, F31, R22", "queue.go", "TestInFrontNow|TestInFrontNow_EachClause|TestVirtual_SpuriousEvents", []Swap{{
		"|| !k.deleted {", "{"}}},
	{"rule: a predecessor of our own session is like any other", "I3", "queue.go", "TestInFrontNow|TestInFrontNow_EachClause", []Swap{{
		"if k.owner == k.session {", "if false {"}}},
	{"rule: there need be no connection", "I3", "queue.go", "TestInFrontNow|TestInFrontNow_EachClause", []Swap{{
		"if k.conn == 0 || k.listConn != k.conn", "if k.listConn != k.conn"}}},
	{"rule: the list may be of an earlier connection", "I3", "queue.go", "TestInFrontNow|TestInFrontNow_EachClause", []Swap{{
		"|| k.listConn != k.conn ||", "||"}}},
	{"rule: the watch on our own node may be restored", "I3", "queue.go", "TestInFrontNow|TestInFrontNow_EachClause|TestVirtual_OwnWatchNotRestored_NeverGrants", []Swap{{
		"|| k.ownConn != k.conn ||", "||"}}},
	{"rule: the watch on the predecessor may be restored", "I3", "queue.go", "TestInFrontNow|TestInFrontNow_EachClause|TestVirtual_PredecessorsWatchRestored_IsGrantedByAList", []Swap{{
		"|| k.aheadConn != k.conn {", "{"}}},
	{"rule: both watches may be restored", "I3", "queue.go", "TestInFrontNow|TestInFrontNow_EachClause|TestVirtual_PredecessorsWatchRestored_IsGrantedByAList", []Swap{{
		"|| k.ownConn != k.conn || k.aheadConn != k.conn {", "{"}}},
	{"rule: all may be of an earlier connection, and a reconnect is slept through", "I3", "walk.go",
		"TestVirtual_RestoredWatches_NeverGrant|TestVirtual_PredecessorGoesWhileAway_IsGrantedByAList", []Swap{
			{"return evidence{\n", "if conn != 0 {\n\t\tw.listConn, w.ownConn, w.aheadConn = conn, conn, conn\n\t}\n\treturn evidence{\n"},
			{"if conn != 0 && conn != w.listConn {", "if conn != 0 && conn != w.listConn && false {"}}},
	// Passing the turn within a session (turnAfter).
	{"turn: the next node is not checked", "I1, I3", "protection.go", "TestVirtual_Turn_NodeDeleted_IsNotPassed", []Swap{{
		"{Op: wire.OpCheck, Path: w.node, Version: -1}", "{Op: wire.OpCheck, Path: x.node, Version: -1}"}}},
	{"turn: it is checked after the delete", "I1, I5", "protection.go", "TestVirtual_Turn_NodeDeleted_IsNotPassed", []Swap{{
		"{Op: wire.OpCheck, Path: w.node, Version: -1}, {Op: wire.OpDelete, Path: x.node, Version: -1},", "{Op: wire.OpDelete, Path: x.node, Version: -1}, {Op: wire.OpCheck, Path: w.node, Version: -1},"}}},
	{"turn: a second try does not check", "I1, F9", "protection.go", "TestVirtual_Turn_RetryChecksToo", []Swap{{
		"\t\tvar ended bool\n", "\t\tif w != nil {\n\t\t\t_, err = x.r.z.ask(context.Background(), wire.OpDelete, wire.PathVersionRequest{Path: x.node, Version: -1})\n\t\t\tif a = (tap.Answer{}); err == nil {\n\t\t\t\tw.tell(turnIsYours)\n\t\t\t}\n\t\t\tw = nil\n\t\t}\n\t\tvar ended bool\n"}}},
	{"turn: a waiter that gives up passes it", "I1", "protection.go", "TestVirtual_Turn_WaiterGivesUp_PassesNothing", []Swap{{
		"return r.begin(node, func() *waiter { return nil }, nil)", "return r.begin(node, func() *waiter { return r.nodes.next(node, queueMarkers) }, nil)"}}},
	{"turn: it is passed before the answer", "I1, I3", "protection.go", "TestVirtual_Turn_NodeDeleted_IsNotPassed", []Swap{{
		"\tw := next()\n", "\tw := next()\n\tif w != nil {\n\t\tw.tell(turnIsYours)\n\t}\n"}}},
	{"turn: a check that fails passes it", "I1, I3", "queue.go", "TestTurnAfter|TestVirtual_Turn_NodeDeleted_IsNotPassed", []Swap{{
		"case failed == 0 && noNode:\n\t\treturn nodeIsGone", "case failed == 0 && noNode:\n\t\treturn turnIsYours"}}},
	{"turn: a node that may not be read keeps the lock from being released", "I4, F27", "queue.go", "TestTurnAfter|TestVirtual_Turn_NodeCannotBeRead_IsReleased", []Swap{{
		"case failed == 0, failed < 0 && noNode: // we may", "case false: // we may"}}},
	{"turn: to one who sees another queue", "I1", "turn.go", "TestVirtual_Turn_OtherQueuePattern_IsNotPassed", []Swap{{
		"if !w.skipped && slices.Equal(w.markers, markers) {", "if !w.skipped {"}}},
	{"turn: who gets none is not told", "I8", "turn.go", "TestVirtual_Turn_WaiterGivesUp_PassesNothing", []Swap{{
		"\t\tw.tell(turnUnknown)\n", "\t\t_ = w\n"}}},
	{"turn: who has given up may get it", "I1", "attempt.go", "TestVirtual_Turn_GivenUp_IsNotAsked", []Swap{{
		"\tif a.at.behind != nil {\n", "\tif false {\n"}}},
	{"turn: to be told that the predecessor is gone is enough", "I1", "walk.go", "TestWalk|TestVirtual_Turn_WaiterGivesUp_PassesNothing", []Swap{{
		"\tcase turnIsYours:\n\t\tnext", "\tcase turnIsYours, turnUnknown:\n\t\tnext"}}},
	{"turn: two nodes ahead may have one suffix", "I1, F35", "queue.go", "TestPlaceOf|TestPlaceOf_RandomQueues_OneFront|TestVirtual_Turn_NotPassedOverANodeWithTheHoldersNumber", []Swap{{
		"\t\tp.disordered = p.disordered || !known\n", ""}}},
	{"turn: where suffixes order nothing, it proves as much", "I1, F34, F35", "walk.go", "TestWalk|TestVirtual_Turn_NotPassedOverANodeWithTheHoldersNumber", []Swap{{
		"ok && !w.disordered {", "ok {"}}},
	{"turn: nobody looks after those who wait for it", "F24", "watcher.go", "TestVirtual_Turn_OwnNodeDeleted_IsSeen", []Swap{{
		"range w.nodes.waiting() {", "range w.nodes.waiting()[:0] {"}}},

	{"turn: those behind a node that cannot be deleted wait for its release", "I8, R25", "protection.go", "TestVirtual_Turn_ReleaseRefused_SomebodyDeletesTheNode", []Swap{{
		"\t\tx.r.nodes.stays(x.node)\n", ""}}},
	{"a transaction that is answered without results has succeeded", "I1, I3", "zksession.go", "TestMulti_AnswerSaysNothing", []Swap{{
		"\tif len(res.Results) != n {", "\tif false {"}}},
	{"a release waits on when the Session is closed", "I6", "hold.go", "TestVirtual_CloseDuringTheDelete_ComesBackAtOnce", []Swap{{
		"case <-h.d.e.over:", "case <-chan struct{}(nil):"}}},
	{"each waiter keeps its list", "I7, F29", "attempt.go", "TestVirtual_ManyWaiters_KeepNoLists", []Swap{{
		"at.list, at.predecessor = nil, ", "at.predecessor = "}}},
	{"a try carries the attempt on for others", "I6", "attempt.go", "TestVirtual_Call_TryBegins", []Swap{{
		"if a.call != nil && len(a.call.outcome) > 0 {", "if false {"}}},
	{"a call that leaves takes the attempt along", "I2, I6", "mutex.go", "TestVirtual_Call_Leaves", []Swap{{
		"if !t.begin(ctx, &h.handle) && !m.s.link.spawn(t.run) {", "if !t.begin(ctx, &h.handle) && false {"}}},
	{"a create under way is forgotten when its call leaves", "I2, I4", "attempt.go", "TestVirtual_Call_Leaves", []Swap{{
		"\t\tif errors.Is(err, errLeft) {\n\t\t\treturn err\n\t\t}\n\t\tc, early", "\t\tif errors.Is(err, errLeft) {\n\t\t\ta.c = nil\n\t\t\treturn err\n\t\t}\n\t\tc, early"}}},
	{"rule: an event of our own node does not matter", "I3", "queue.go", "TestInFrontNow|TestInFrontNow_EachClause", []Swap{{
		"if k.ownFired {", "if false {"}}},
	{"grant: our own node may go at the last moment", "I3", "attempt.go", "TestGrant_OwnNodeDeletedInBetween_QueuesAgain", []Swap{{
		"if own != nil && own.hasFired() && own.event == zk.EventNodeDeleted {", "if false {"}}},
	{"grant: the session may be over", "I3, R57", "era.go", "TestGrant_SessionOver_GrantsNothing", []Swap{{
		"\terr = e.why()\n", ""}}},
	{"grant: no look at the lease after a long wait", "I5", "era.go", "TestVirtual_LongWait_LeaseIsRenewedBeforeTheGrant", []Swap{{
		"ok = err == nil && e.mu.lease.end.Sub(now) >= e.mu.lease.minRoom()", "ok = err == nil"}}},
	{"grant: the first heartbeat after a wait is not hurried", "I5", "era.go", "TestVirtual_GrantAfterAWait_IsNotLost", []Swap{{
		"if first && e.mu.lease.end.Sub(now) <", "if false && e.mu.lease.end.Sub(now) <"}}},

	// Watches.
	{"a watch that could not be set is kept", "I7, R8", "watcher.go", "TestWatch_NotSet_IsAskedForAgain", []Swap{{
		"if w.mu.watches[on.path] == on { // a read that fails", "if false { // a read that fails"}}},
	{"ids of lost creates are kept", "I7, R8", "protection.go", "TestVirtual_TenThousandCycles_GrowNothing", []Swap{{
		"\t\t\t\tr.forgetStray(id)\n", ""}}},
	{"each waiter lists for itself", "R50, R69, F40", "list.go", "TestVirtual_CreatesLost_AreLookedForTogether", []Swap{{
		"\tq := l.mu.queues[kind]\n\tif q == nil {\n", "\tvar q *listQueue\n\tif q == nil {\n"}}},
	{"a watch that fired is kept, and not set again", "F31, I8", "watcher.go", "TestVirtual_DataChanged_IsWatchedOn", []Swap{{
		"\tdelete(w.mu.watches, ev.Path)\n\tif on != nil {\n", "\tif on != nil && !on.hasFired() {\n"}}},
	{"each wait sets a watch of its own", "I7, R8", "watcher.go", "TestVirtual_WaitsTimeOut_ShareOneWatch", []Swap{{
		"if on := w.mu.watches[path]; on != nil {", "if on := w.mu.watches[path]; false && on != nil {"}}},
	{"a waiter sleeps through a reconnect", "F22, F30", "walk.go", "TestVirtual_WatchesNotRestored_ListsAgain", []Swap{{
		"if conn != 0 && conn != w.listConn {", "if conn != 0 && conn != w.listConn && false {"}}},
	{"watches that were not restored are kept", "F30", "watcher.go", "TestVirtual_WatchesRefused_AreSetAtOnce", []Swap{{
		"if a.Code != wire.OK {", "if false {"}}},
	{"a restored watch counts as one set on this connection", "I1, I3, F31", "watcher.go", "TestVirtual_PredecessorsWatchRestored_IsGrantedByAList", []Swap{{
		"func (w *watcher) restored(them []*watch, a tap.Answer) {\n", "func (w *watcher) restored(them []*watch, a tap.Answer) {\n\tfor _, on := range them {\n\t\ton.conn = a.Conn\n\t}\n"}}},
	{"watches are restored as of the beginning of time", "I8, F31", "watcher.go", "TestVirtual_PredecessorsWatchRestored_IsGrantedByAList", []Swap{{
		"RelativeZxid: w.mu.since", "RelativeZxid: 0 * w.mu.since"}}},
	{"no re-check", "F30", "watcher.go", "TestVirtual_EventLost_IsGrantedByTheRecheck|TestVirtual_OwnEventLost_QueuesAgain", []Swap{{
		"for w.z.pause(w.z.timeout()) {", "for w.z.pause(24 * time.Hour) {"}, {
		"import (\n\t\"context\"\n\t\"errors\"\n", "import (\n\t\"context\"\n\t\"errors\"\n\t\"time\"\n"}}},
	{"a re-check that finds a node gone tells nobody", "F30", "watcher.go", "TestVirtual_EventLost_IsGrantedByTheRecheck", []Swap{{
		"errors.Is(err, zk.ErrNoNode) {\n", "errors.Is(err, zk.ErrNoNode) && false {\n"}}},
	{"a re-check that finds a node gone is its deletion", "I3, F30", "watcher.go", "TestVirtual_BothEventsLost_NeverGrants", []Swap{{
		"on.event = zk.EventNotWatching", "on.event = zk.EventNodeDeleted"}}},
	{"nobody looks again when the queue was empty for a while", "F30", "watcher.go", "TestVirtual_EventLost_IsGrantedByTheRecheck", []Swap{{
		"\t\t\tw.mu.looking = false // the next", "\t\t\t// the next"}}},
	{"everybody lists in each session timeout", "F30, F40", "watcher.go", "TestVirtual_QuietWait_CostsOneReadANode", []Swap{{
		"errors.Is(err, zk.ErrNoNode) {\n", "errors.Is(err, zk.ErrNoNode) || err == nil {\n"}}},
	{"watches are not restored after a reconnect", "I1", "link.go", "TestLink_RestoredWatchesGoFirst|TestVirtual_RestoredWatches_GoFirst", []Swap{{
		"range e.restore(c.tap.Before()) {", "range e.restore(c.tap.Before())[:0] {"}}},
	{"an answer counts for another connection than its own", "I1, I3, F6", "internal/tap/tap.go", "TestRequest_IsAnswered_ClientSeesNothing", []Swap{{
		"Conn: t.Seq, Zxid: h.Zxid", "Conn: t.Seq + 1, Zxid: h.Zxid"}}},
	{"whoever is gone when it is to be watched was the front", "I1, R55", "walk.go", "TestVirtual_PredecessorGoneWhenAsked|TestWalk", []Swap{{
		"\t\tw.next, w.aheadConn = toAwait, conn\n", "\t\tw.next, w.aheadConn, w.ahead = toAwait, conn, 1\n"}}},
	{"that it is gone counts for the list's connection", "I1, I3", "walk.go", "TestWalk", []Swap{{
		"\t\tw.next, w.aheadConn = toAwait, conn\n", "\t\tw.next, w.aheadConn = toAwait, w.listConn\n"}}},
	{"a predecessor that is gone when it is to be watched is waited for", "I8", "watcher.go", "TestVirtual_PredecessorGoneWhenAsked", []Swap{{
		"\t\t\t\tclose(on.fired)\n\t\t\t}\n\t\t}\n\t} else", "\t\t\t}\n\t\t}\n\t} else"}}},
	{"who is gone when it is to be watched is told twice", "I6", "watcher.go", "TestWatch_EventBeforeTheAnswer_IsToldOnce", []Swap{{
		"\t\t\tdelete(w.mu.watches, on.path)\n\t\t\tif errors.Is(err, zk.ErrNoNode) {", "\t\t\tdelete(w.mu.watches, on.path)\n\t\t}\n\t\t{\n\t\t\tif errors.Is(err, zk.ErrNoNode) {"}}},
	{"a watch that could not be set is waited for", "I7", "attempt.go", "TestVirtual_ConnectionLostWhileWatchesAreSet_ListsOnce", []Swap{{
		"at.ahead.hasFired() || at.ahead.hasFailed()", "at.ahead.hasFired()"}}},
	{"a hold made while a beat is chosen is not in it", "I5", "beat.go", "TestBeat_HeldSinceTheLook_IsChecked", []Swap{{
		"\tb.mu.under, b.mu.soon = conn, false\n\tb.mu.Unlock()\n\treturn b.z.carrier.spawn(func() {\n\t\tif nodes := b.holds.heldNodes(); len(nodes) > 0 {", "\tnodes := b.holds.heldNodes()\n\tb.mu.under, b.mu.soon = conn, false\n\tb.mu.Unlock()\n\treturn b.z.carrier.spawn(func() {\n\t\tif len(nodes) > 0 {"}}},
	{"the predecessor is watched before our own node", "F31", "attempt.go", "TestVirtual_Waiter_WatchesItsOwnNodeFirst", []Swap{{
		"\t\t\tat.own = e.startWatch(c.node)\n", "\t\t\te.startWatch(at.predecessor)\n\t\t\tat.own = e.startWatch(c.node)\n"}}},
	{"a watch is registered when its request is answered", "I8, F30", "watcher.go", "TestVirtual_EventBehindTheAnswer_IsHeard", []Swap{
		{"\tw.mu.watches[path] = on\n", ""},
		{"func(a tap.Answer) { w.armed(on, a) })", "func(a tap.Answer) {\n\t\t\tgo func() {\n\t\t\t\tw.mu.Lock()\n\t\t\t\tw.mu.watches[on.path] = on\n\t\t\t\tw.mu.Unlock()\n\t\t\t\tw.armed(on, a)\n\t\t\t}()\n\t\t})"}}},
	{"the one ahead of the predecessor is not watched", "I8", "attempt.go", "TestVirtual_Release_WakesOneWaiter", []Swap{{
		"if at.second = nil; w.second {", "if w.second = false; w.second {"}}},
	{"the watch on the one ahead of the predecessor is not waited for", "I8", "walk.go", "TestWalk", []Swap{{
		"\t\tif w.second {\n", "\t\tif false {\n"}}},
	{"an event of the one ahead of the predecessor is slept through", "I8", "attempt.go", "TestVirtual_Release_WakesOneWaiter", []Swap{{
		"secondFired = at.second.fired", "secondFired = nil"}}},
	{"a watch on the predecessor that fired before the list goes on", "F31, I8", "attempt.go", "TestVirtual_DataChanged_IsWatchedOn", []Swap{{
		"(at.ahead.hasFired() || at.ahead.hasFailed())", "at.ahead.hasFailed()"}}},
	{"the watch on another predecessor goes on", "I1", "attempt.go", "TestVirtual_TwoGiveUp_TheSecondDuringTheList", []Swap{{
		"if at.ahead == nil || at.ahead.path != at.predecessor {", "if at.ahead == nil {"}}},
	{"everybody watches the first in the queue", "I8, F40", "queue.go", "TestPlaceOf|TestVirtual_Release_WakesOneWaiter", []Swap{{
		"isAhead, known := ahead(b, a)\n", "isAhead, known := ahead(a, b)\n"}}},
	{"everybody watches the whole root", "I8, F40", "watcher.go", "TestVirtual_Release_WakesOneWaiter", []Swap{
		{"\tif !w.z.carrier.send(w.z, r) {\n\t\tw.armed", "\tw.z.carrier.send(w.z, tap.NewRequest(wire.OpGetChildren2, wire.PathWatchRequest{Path: parentOf(path), Watch: true}, func(tap.Answer) {}))\n\tif !w.z.carrier.send(w.z, r) {\n\t\tw.armed"},
		{"\ton := w.mu.watches[ev.Path]\n", `	for p, other := range w.mu.watches {
		if ev.Type == wire.EventChildrenChanged && strings.HasPrefix(p, ev.Path+"/") {
			delete(w.mu.watches, p)
			other.event = zk.EventType(ev.Type)
			close(other.fired)
		}
	}
	on := w.mu.watches[ev.Path]
`},
		{"import (\n\t\"context\"\n", "import (\n\t\"context\"\n\t\"strings\"\n"}}},

	// The order of the queue, and the token.
	{"the counter's end is ignored", "I1, F34", "queue.go", "TestPlaceOf", []Swap{{
		"return m.seq < 0 || m.seq >= wrapStart }", "return false }"}}},
	{"names are compared as text", "I1, F36", "queue.go", "TestPlaceOf", []Swap{{
		"return a.seq < b.seq, true", "return a.name < b.name, true"}}},
	{"everybody is taken to order the counter's end as we do", "I1, F34", "queue.go", "TestPlaceOf|TestVirtual_SequenceEnd_ForeignNode_IsExhausted", []Swap{{
		"if m.wrapped() && !ordersByCzxid(m.name) {", "if m.wrapped() && false {"}}},
	{"the counter's end is said at each acquire", "F34", "root.go", "TestVirtual_SequenceNearItsEnd_IsSaidOnce", []Swap{{
		"{ n.warned = true }).warned {", "{ n.warned = false }).warned {"}}},
	{"any child takes part in the queue", "I6", "queue.go", "TestParseMember", []Swap{{
		"if !hasMarker(head, markers) || seq > wrapStart", "if seq > wrapStart"}}},
	{"the token is the sequence number", "I1, R59", "protection.go", "TestVirtual_Token_GrowsAcrossLockRoots", []Swap{{
		"\t\t\t\tc.node, c.token = c.made, token\n", "\t\t\t\t_, _ = fmt.Sscanf(c.made[len(c.made)-10:], \"%d\", &token)\n\t\t\t\tc.node, c.token = c.made, token\n"}}},
	{"the head of the reply is believed", "I1, R59", "protection.go", "TestVirtual_Token_HeadSaysSomethingElse_IsReadFromTheStat", []Swap{{
		"\t\t\tmode = tokenFromStat\n", "\t\t\t_ = tokenFromStat\n"}}},
	{"the counter is never started again", "F34", "root.go", "TestVirtual_SequenceEnd", []Swap{{
		"\tif r.nearTheEnd(node) {\n\t\te.carrier", "\tif false {\n\t\te.carrier"}}},

	// The lease.
	{"any answered frame renews the lease", "I5, F12", "lease.go", "TestLease_QuorumLease|TestVirtual_HolderOnTheMinority_IsToldBeforeTheNextGrant", []Swap{{
		"\tif l.mode.singleServer {\n\t\tl.extend(f.sent)\n", "\tif true {\n\t\tl.extend(f.sent)\n"}}},
	{"a ping renews the lease when it is sent", "I5", "internal/tap/tap.go", "TestTap_PingsAreAnsweredInOrder", []Swap{{
		"\t\t\tt.zxids.Request(f[4:])\n", "\t\t\tt.zxids.Request(f[4:])\n\t\t\tt.sink.Answered(at, at)\n"}}},
	{"the lease starts when the answer comes", "I5", "internal/tap/tap.go", "TestTap_AnswersAreAnchoredAtTheirSending", []Swap{{
		"\tt.sink.Answered(x.at, t.in.now)\n", "\tt.sink.Answered(t.in.now, t.in.now)\n"}}},
	{"a quorum operation vouches for frames just before it", "I5, F12", "lease.go", "TestLease_QuorumLease", []Swap{{
		"cutoff := sent.Add(-l.mode.leaderPing)", "cutoff := sent"}}},
	{"the last frame is taken, not the last but one", "I5", "lease.go", "TestLease_QuorumLease", []Swap{{
		"base = max(base, l.exchanges[i-1].sent)", "base = max(base, l.exchanges[i].sent)"}}},
	{"frames of an earlier connection count", "I5", "lease.go", "TestLease_SingleServerLease", []Swap{{
		"func (l *lease) answered(conn uint64, f exchange) {\n\tif conn != l.conn {", "func (l *lease) answered(conn uint64, f exchange) {\n\tif false {"}}},
	{"a quorum operation on an earlier connection counts", "I5", "lease.go", "TestLease_QuorumLease", []Swap{{
		"if conn != l.conn || l.mode.singleServer {", "if l.mode.singleServer {"}}},
	{"a shorter session timeout does not count at once", "I5, F38", "lease.go", "TestLease_TimeoutChangesOnAttachingAgain", []Swap{{
		"\tif shorter {\n", "\tif shorter && false {\n"}}},
	{"no margin: told when the session ends", "I5", "lease.go", "TestWorth", []Swap{{
		"/clockRate) - leaseSlop\n", ")\n"}}},
	{"events are a sign of life", "I5", "internal/tap/tap.go", "TestTap_EventsAreNoSignOfLife", []Swap{{
		"\t\t\tt.sink.Event(ev)\n", "\t\t\tt.sink.Event(ev)\n\t\t\tt.sink.Answered(t.in.now, t.in.now)\n"}}},
	{"a failed multi is a quorum operation", "I5", "internal/tap/tap.go", "TestTap_QuorumOperations", []Swap{{
		"first.Int32() != int32(wire.OpError) && first.Err() == nil {", "first != nil {"}}},
	{"an error code in a ping's answer is overlooked", "F39", "internal/tap/tap.go", "TestTap_PingWithAnErrorCode_IsRefusal|TestVirtual_PingRefused_IsLost", []Swap{{
		"\tcase code != wire.OK:\n\t\tt.sink.Refused", "\tcase false:\n\t\tt.sink.Refused"}}},
	{"SessionMoved is a sign of life", "I5", "internal/tap/tap.go", "TestTap_ErrorCodesAboutTheSession", []Swap{{
		"\tcase h.Err == wire.SessionMoved:\n\t\treturn", "\tcase h.Err == wire.SessionMoved:\n\t\tt.sink.Answered(x.at, t.in.now)\n\t\treturn"}}},
	{"the clock is the wall clock", "I5, F20", "internal/clock/clock.go", "TestClock_IgnoresTheWallClock", []Swap{{
		"d := time.Since(c.start)", "d := time.Now().Round(0).Sub(c.start.Round(0))"}}},
	{"the boot time and the wall clock are read apart", "I5, F20", "internal/clock/clock.go", "TestSinceBoot_ClockStep", []Swap{{
		"\t\tif before == after {\n", "\t\tif after = before; before == after {\n"}}},
	{"how long a machine has slept is not read again after a sleep", "I5, F20", "internal/clock/clock.go", "TestReading_Holds", []Swap{{
		"monotonic < most && wall > -most && wall < most", "monotonic < most && wall == wall"}}},
	{"how long a machine has slept is read once for ever", "I5, F20", "internal/clock/clock.go", "TestReading_Holds", []Swap{{
		"monotonic >= 0 && monotonic < most && wall > -most", "monotonic >= 0 && wall > -most"}}},
	{"the clock stands still in suspend", "I5, F21", "internal/clock/clock.go", "TestClock_CountsSuspend|TestVirtual_Suspend_IsLostAtTheFirstLook", []Swap{{
		"Instant(d + c.suspended() - c.suspended0)", "Instant(d)"}}},
	{"heartbeats pile up", "I5, I7", "beat.go", "TestVirtual_HeartbeatNotAnswered_IsTheOnlyOne", []Swap{{
		"\tif b.mu.under == conn {\n\t\tb.mu.Unlock()\n\t\treturn false\n\t}\n", ""}}},
	{"what the heartbeat finds deleted goes on being held", "F24", "beat.go", "TestVirtual_NodeDeleted_TheHeartbeatTells", []Swap{{
		"\t\tb.holds.loseNode(failed, errNodeGone)\n", ""}}},
	{"one node without READ ends the heartbeat of all", "R68, F43", "zksession.go", "TestVirtual_ReadTakenFromAHeldNode_OnlyThatHoldEnds|TestVirtual_MutexWithoutRead_EndsNoOtherHold", []Swap{{
		"\tif isRefusal(err) && i >= 0 {", "\tif errors.Is(err, zk.ErrNoNode) && i >= 0 {"}}},
	{"what the heartbeat may not read goes on being held", "I5, F43", "beat.go", "TestVirtual_ReadTakenFromAHeldNode_OnlyThatHoldEnds|TestVirtual_MutexWithoutRead_EndsNoOtherHold", []Swap{{
		"\t\tb.holds.loseNode(failed, fmt.Errorf(\"%w: %w\", errUnreadable, err))\n", "\t\t_ = fmt.Errorf(\"%w: %w\", errUnreadable, err)\n"}}},
	{"the node of a hold that ended without its session is left", "I4, F43", "era.go", "TestVirtual_ReadTakenFromAHeldNode_OnlyThatHoldEnds", []Swap{{
		"\tcase told:\n", "\tcase told && false:\n"}}},
	{"a late answer brings a lease back that had ended", "I5, F18", "era.go", "TestVirtual_AnswerAfterTheLeasesEnd_RenewsNothing", []Swap{{
		"\te.loseIfLate(e.clock.Now())\n\te.mu.Lock()\n\tdefer e.mu.Unlock()\n\tif !e.isOver() {\n", "\te.mu.Lock()\n\tdefer e.mu.Unlock()\n\tif !e.isOver() {\n"}}},

	// Being told.
	{"Err looks at a flag, not at the clock", "I5, F18", "hold.go", "TestVirtual_Suspend_IsLostAtTheFirstLook", []Swap{{
		"func (h *Hold) Err() error {\n\th.d.loseIfLate()\n", "func (h *Hold) Err() error {\n"}}},
	{"Release looks at a flag, not at the clock", "I5, F18", "hold.go", "TestVirtual_Suspend_ReleaseSaysLost", []Swap{{
		"\th.d.loseIfLate()\n\tleaseEnd :=", "\tleaseEnd :="}}},
	{"Release waits an outage out", "I6, R66, F44", "hold.go", "TestVirtual_ServersDead_ReleaseEndsWithTheLease|TestVirtual_ReleaseNotConfirmed_GoesOnInTheBackground", []Swap{{
		"end, ctxEnded := max(leaseEnd, clk.Now().Add(grace)),", "end, ctxEnded := leaseEnd.Add(24*time.Hour),"}}},
	{"Release waits by a timer that sleeps with the machine", "I6, F21", "hold.go", "TestVirtual_SuspendDuringRelease_EndsSoonAfter", []Swap{{
		"time.NewTimer(min(left, look))", "time.NewTimer(max(left, look))"}}},
	{"a session that ends during a Release is a loss", "R70", "hold.go", "TestVirtual_ServersDead_ReleaseEndsWithTheLease|TestVirtual_ReleaseWhileAnotherHoldIsLost_IsNoLoss", []Swap{{
		"return fmt.Errorf(\"%w: %w; the node goes with its session\", ErrNotConfirmed, err)", "return lostBecause(err)"}}},
	{"what is not confirmed is taken for done", "R66", "hold.go", "TestVirtual_ServersDead_ReleaseEndsWithTheLease|TestVirtual_ReleaseNotConfirmed_GoesOnInTheBackground", []Swap{{
		"\t\tif left <= 0 {\n\t\t\treturn notConfirmed(errNoAnswer)", "\t\tif left <= 0 {\n\t\t\treturn nil"}}},
	{"the context does not end at the loss", "I5", "lockdata.go", "TestVirtual_SessionExpires_IsToldAtOnce", []Swap{{
		"\t\th.cancel(lost)\n", "\t\t_, _ = h, lost\n"}}},
	{"SessionExpired is taken for a reconnect", "I5, F8", "report.go", "TestVirtual_SessionExpires_IsToldAtOnce", []Swap{{
		"l.dials.hosts.forgive()\n", "l.dials.hosts.forgive()\n\t\told = nil\n"}}},
	{"a new session id is taken for a reconnect", "I5, F37", "report.go", "TestLink_AnotherSessionID_IsAnExpiry", []Swap{{
		"case old == nil || old.id != resp.SessionID:", "case old == nil:"}}},
	{"a session that was given up keeps the client from older servers", "F23", "internal/expire/expire.go", "TestVirtual_ServerRestartsOlder_LostAtTheDeadline", []Swap{{
		"session.LastZxidSeen = 0", "session.LastZxidSeen = 1 << 62"}}},
	{"nobody asks after a session that should be over", "F23, I6", "report.go", "TestVirtual_ServerRestartsOlder_WaiterQueuesAgain", []Swap{{
		"case e.overdue(l.clock.Now(), askedAfter):", "case false && e.overdue(l.clock.Now(), askedAfter):"}}},
	{"asking after a session ends it", "I8, F22", "report.go", "TestVirtual_ServerAwayForLong_WaiterKeepsItsPlace", []Swap{{
		"\t\treturn tap.AskAfter\n", "\t\treturn tap.EndIt\n"}}},
	{"who asks after a session goes on in it", "F23", "internal/tap/handshake.go", "TestTap_AskAfterASession", []Swap{{
		"if h.approach == AskAfter && w.SessionID != 0 {", "if false {"}}},
	{"a session that was given up is taken up again", "I5", "report.go", "TestLink_GivenUpSession_IsRefused", []Swap{{
		"case old.isOver(): // given up", "case false: // given up"}}},
	{"the lease ends and the ZooKeeper session does not", "I5, R41, R65", "report.go", "TestLink_GivenUpSession_IsEnded|TestVirtual_LeaseEnds_SessionIsEndedAtTheServers", []Swap{{
		"\tcase e.isOver():\n\t\treturn tap.EndIt\n", ""}}},
	{"a given-up session is touched for ever", "R65", "report.go", "TestLink_GivenUpSession_IsEnded|TestVirtual_GivenUpSession_ServersHangUp_IsLeftToExpire", []Swap{{
		"case e.isOver() && e.leftToExpire():", "case false && e.leftToExpire():"}}},
	{"a given-up session is ended without credentials", "R65, F42", "internal/expire/expire.go", "TestTap_GivenUpSession_IsEndedAndTheClientToldSo", []Swap{{
		"\tfor _, a := range auths {\n", "\tfor _, a := range auths[:0] {\n"}}},
	{"the credentials may take as long as the client waits", "F41", "internal/tap/tap.go", "TestTap_Credentials_AreCapped", []Swap{{
		"(!t.isShaken() || t.handshake.auths > 0)", "!t.isShaken()"}}},
	{"an attempt that is not in the queue yet waits for nobody", "I6, F41", "era.go", "TestVirtual_ServerGoesDark_WhileTheTokenIsRead|TestVirtual_ServerGoesDark_WhileTheRootIsMade", []Swap{{
		"e.attempts.Load() > 0 || e.isErasing()", "e.queued() > 0 || e.isErasing()"}}},
	{"a refusal to end a session is not taken for an answer", "R65, F42", "internal/tap/handshake.go", "TestTap_GivenUpSession_IsEndedAndTheClientToldSo", []Swap{{
		"case errors.As(err, &refusal):", "case errors.As(err, &refusal) && false:"}}},
	{"any answer is taken for the end of the session", "R65", "internal/expire/expire.go", "TestTap_GivenUpSession_IsEndedAndTheClientToldSo", []Swap{{
		"case h.Xid == xidClose:", "case h.Xid != 0:"}}},
	{"what is in the socket of a given-up session arrives later", "R65", "internal/tap/tap.go", "TestVirtual_GivenUpConnection_NothingArrivesLater", []Swap{{
		"_ = l.SetLinger(0)", "_ = l"}}},
	{"a silent server is never left", "F41, I5", "silence.go", "TestVirtual_FollowerGoesDark_NoHoldIsLost", []Swap{{
		"\tif now < ends {", "\tif now < ends || true {"}}},
	{"a silent server is left when its bytes arrive", "F16", "silence.go", "TestSilenceEnds", []Swap{{
		"return max(heard.Add(beats*beat), asked.Add((beats-1)*beat))", "return asked.Add((beats-1)*beat)"}}},
	{"servers that are all slow are left again and again", "F16, R50", "silence.go", "TestVirtual_AllServersSlow_AreNotLeftAgainAndAgain|TestVirtual_ServersStallNowAndThen_AreNotLeftEachTime", []Swap{{
		"s.left, s.last = s.left+1, now", "s.last = now"}}},
	{"what was cut long ago still counts", "F41", "silence.go", "TestVirtual_WaitersServerGoesDark_IsLeft", []Swap{{
		"if now.Sub(s.last) > leftForgotten {", "if now.Sub(s.last) > 1000*leftForgotten {"}}},
	{"an attempt that ends without a node still counts", "F41", "attempt.go", "TestAttempt_EndsBetweenTwoNodes_IsCountedOut", []Swap{{
		"\t\t\ta.enter(nil)\n\t\t\tclose(a.done)", "\t\t\tclose(a.done)"}}},
	{"the only server is left", "F41", "session.go", "TestVirtual_OneServer_IsNotLeft", []Swap{{
		"&& s.link.dials.alternatives() {", "{"}}},
	{"a dark server is dialled for as long as may be", "F41", "dial.go", "TestVirtual_TwoServersGoDark_NoHoldIsLost", []Swap{{
		"to.quick = beat << min(d.hosts.lap(), 10)", "to.quick = beat << 10"}}},
	{"a pause of the process is taken for a server's silence", "F18, F41", "silence.go", "TestVirtual_PausedProcess_DoesNotLeaveItsServer", []Swap{{
		"if now.Sub(ends) > lateLook && s.doubted != ends {", "if s.doubted < 0 {"}}},
	{"a longer timeout of a later server counts", "F45, I5", "lease.go", "TestLease_TimeoutChangesOnAttachingAgain", []Swap{{
		"if newSession || shorter {", "if true {"}}},
	{"the connection that reassures falsely is kept", "F12, R41", "link.go", "TestVirtual_NoQuorum_IsLostAndLeft", []Swap{{
		"\tif t != nil {\n\t\tt.Cut()\n\t}\n", "\t_ = t\n"}}},
	{"Lost is told twice", "R40", "state.go", "TestStateMachine_Next|TestStateMachine_RandomEvents_LostOncePerSession", []Swap{{
		"&& m.state != Lost &&", "&&"}}},

	{"a waiter that is told to fail queues in the next session", "R72", "attempt.go", "TestVirtual_SessionEndsAfterTheNode_FailsIfToldTo|TestAttempt_SessionEndsJustBeforeTheGrant_FailsIfToldTo", []Swap{{
		"\t\t\tif err := a.pause(a.e, backoff.next()); err != nil {\n\t\t\t\treturn err\n\t\t\t}\n\t\t\tif _, err := a.e.waitAttached(a.ctx); err != nil {",
		"\t\t\t_ = a.pause(a.e, backoff.next())\n\t\t\tif a.e, err = a.link.attachedEra(a.ctx); err != nil {"}}},

	// Owners and handles.
	{"owners of one Session are one owner", "I1, I2", "lockdata.go", "TestVirtual_TwoOwnersOfOneSession_ExcludeEachOther", []Swap{{
		"key = lockKey{root.path, NewOwner(\"\")}", "key = lockKey{root.path, Owner{}}"}}},
	{"an owner leaks from one lock into another", "I1, R67", "hold.go", "TestVirtual_FanOutUnderAnOuterHold_ExcludesInTheInnerLock", []Swap{{
		"by := asker{owner: ownerSet(ctx)}\n", "var by asker\n\tby.owner, _ = OwnerFrom(ctx)\n"}}},
	{"a hold that was released is permission", "I1, R67", "lockdata.go", "TestVirtual_ReleasedHold_IsNobodysPermission", []Swap{{
		"if by.under != nil && t.byKey[by.under.key] == by.under {", "if by.under != nil {"}}},
	{"a context gives its innermost hold for any lock", "I1, R67", "hold.go", "TestVirtual_HoldFrom_IsOfThatLock|TestVirtual_FanOutUnderAnOuterHold_ExcludesInTheInnerLock", []Swap{{
		" && (k.root == \"\" || k.root == c.h.d.key.path) {", " {"}}},
	{"a hold carries itself and not those further out", "I2, R67", "hold.go", "TestVirtual_NestedLocks_AreReentered", []Swap{{
		"\treturn c.Context.Value(key)\n", "\tif _, ok := key.(holdKey); ok {\n\t\treturn nil\n\t}\n\treturn c.Context.Value(key)\n"}}},
	{"the first release gives the lock back", "I1, R3", "lockdata.go", "TestLockTable_ReleaseCountsHandles", []Swap{{
		"last = len(d.handles) == 0", "last = true"}}},
	{"a second release counts again", "I1, R63", "lockdata.go", "TestLockTable_ReleaseCountsHandles", []Swap{{
		"\tif h.end != nil {\n\t\treturn false, false, nil\n\t}\n", ""}}},
	{"a lost lock is re-entered", "I1", "lockdata.go", "TestLockTable_LostHoldIsNotReentered", []Swap{{
		"\tcase d.lost != nil:\n", "\tcase false:\n"}}},
	{"a call that leaves at the grant has left and is granted", "F33", "lockdata.go", "TestLockTable_LeaveAfterTheGrant_IsGranted", []Swap{{
		"\tif _, ok := a.calls[h]; !ok {\n\t\treturn false, false\n\t}\n", ""}}},
	{"the lock is granted although nobody waits", "I4, F33", "lockdata.go", "TestLockTable_AttemptEndsWithItsLastCall", []Swap{{
		"if len(a.calls) == 0 || d.lost != nil {", "if d.lost != nil {"}}},
	{"a try goes away and leaves its attempt waiting", "I4", "lockdata.go", "TestVirtual_TwoOwnersOfOneSession_ExcludeEachOther", []Swap{{
		"\tif !wait {\n", "\tif !wait && at.place < 2 {\n"}}},
	{"local ownership ends after the delete", "R17", "lockdata.go", "TestLockTable_AcquireDuringTheLastRelease_StartsAfresh", []Swap{{
		"\tif last {\n\t\tt.forgetLocked(d)\n", "\tif last {\n"}}},
	{"the hold ends with the wait's context", "I5", "hold.go", "TestHoldContext_OutlivesTheWait", []Swap{{
		"context.WithCancelCause(context.WithoutCancel(ctx))", "context.WithCancelCause(ctx)"}}},
	{"the cap on lock nodes drifts", "I7, F29", "turn.go", "TestVirtual_MaxLockNodes_DoesNotDrift", []Swap{{
		"\t\to.mu.making[by] = true\n\t\to.mu.unmade--\n", "\t\to.mu.making[by] = true\n"}}},

	// The connection.
	// Requests of ours, between the client's.
	{"what was handed to the network was never sent", "I2, F3", "internal/tap/tap.go", "TestRequest_Fates|TestVirtual_CreateLost_IsAdopted", []Swap{{
		"\t\tif r.written {\n", "\t\tif false {\n"}}},
	{"a request goes after the end of the session was asked for", "I4", "internal/tap/traffic.go", "TestRequest_NotBeforeTheHandshake_NotAfterTheEnd", []Swap{{
		"!t.mu.shaken || t.mu.closing || t.mu.closed", "!t.mu.shaken || t.mu.closed"}}},
	{"an answer that nobody asked for is overlooked", "F39", "internal/tap/tap.go", "TestRequest_AnswerToNothing_EndsTheConnection", []Swap{{
		"case !asked && isOurs(h.Xid):", "case false:"}}},
	{"any number of requests is unanswered", "I7", "internal/tap/traffic.go", "TestRequest_Bounded", []Swap{{
		"return l.frames == 0 || ", "return true || l.frames == 0 || "}}},
	{"the heartbeat waits for room", "I5", "internal/tap/traffic.go", "TestRequest_Bounded", []Swap{{
		"if !r.Urgent && (len(t.mu.waiting)", "if (len(t.mu.waiting)"}}},
	{"the last zxid does not count our replies", "F31", "internal/tap/tap.go", "TestRequest_IsAnswered_ClientSeesNothing", []Swap{{
		"\t\tt.zxids.Hidden(h.Zxid)\n", ""}}},
	{"answers that the client does not see do not count for its patience", "F16", "internal/tap/tap.go", "TestVirtual_ManyAnswers_KeepTheConnection", []Swap{{
		"err = t.beenPatient()", "err = nil"}}},
	{"a server that answers only what the client does not see is kept", "I7", "internal/tap/tap.go", "TestVirtual_OnlyOursAnswered_IsLeft", []Swap{{
		"\tif !served {\n", "\tif !served && false {\n"}}},
	{"a loss that comes late ends a hold on another node", "I4", "lockdata.go", "TestLockTable_LostHoldIsNotReentered", []Swap{{
		"if d.node != node || d.lost != nil", "if d.lost != nil"}}},
	{"the next dial does not know of the end of the connection before", "I3, I8", "report.go", "TestLink_NextDial_KnowsOfTheEnd", []Swap{{
		"\t\treport{old, l}.Disconnected() //", "\t\t//"}}},
	{"a session timeout of nothing is taken", "I6", "internal/tap/handshake.go", "TestTap_Handshake_NoTimeout", []Swap{{
		"if w.SessionID != 0 && w.Timeout <= 0 {", "if false {"}}},
	{"the end of a connection is told before its beginning", "I5", "link.go", "TestLink_EndsWhileAttaching", []Swap{{
		"\tl.stepLocked(stateEvent{kind: attached, session: e.id})\n\tl.dials", "\tl.dials"}, {
		"\t\t\treturn // the connection has just ended\n\t\t}\n\t}\n", "\t\t\tbreak\n\t\t}\n\t}\n\tl.stepLocked(stateEvent{kind: attached, session: e.id})\n"}}},
	{"watches are restored as of a connection on which they were not", "F31", "watcher.go", "TestLink_RestoredAsOfTheLastWhole", []Swap{{
		"if w.mu.missing == 0 {", "if true {"}}},
	{"xids start again on each connection", "I2, F2", "report.go", "TestVirtual_Xids_GoOn", []Swap{{
		"&l.xids,", "new(tap.Xids),"}}},

	{"no cap on the handshake", "I6, F17", "internal/tap/tap.go", "TestTap_Handshake_IsCapped", []Swap{{
		"if (!t.isShaken() || t.handshake.auths > 0) && (d.IsZero() || d.After(t.handshake.deadline)) {", "if false {"}}},
	{"requests go before the credentials", "F27", "link.go", "TestLink_CredentialsGoFirst", []Swap{{
		"|| !c.authed ||", "||"}}},
	{"the first answer to credentials is enough", "F27", "internal/tap/handshake.go", "TestTap_Credentials", []Swap{{
		"if h.auths--; h.auths != 0 {", "if h.auths--; h.auths < 0 {"}}},
	{"credentials lie open in the Session", "R71", "options.go", "TestPrinting_NoSecret|TestPrinting_NothingToFind", []Swap{{
		"\tauth          []credential\n", "\tauth          []credential\n\topen          []byte\n"}, {
		"o.auth = append(o.auth, credential{scheme, newSecret(auth)})", "o.open, o.auth = auth, append(o.auth, credential{scheme, newSecret(auth)})"}}},
	{"the password of the ZooKeeper session lies open", "R71", "era.go", "TestPrinting_NothingToFind", []Swap{{
		"\tpassword secret\n", "\tpassword secret\n\topen     []byte\n"}, {
		"password: newSecret(r.Password)}\n", "password: newSecret(r.Password), open: r.Password}\n"}}},
	{"a Session is printed by its fields", "R71", "session.go", "TestPrinting_Says", []Swap{{
		"func (s *Session) GoString(", "func (s *Session) goString("}}},
	{"a connection string with a password is quoted", "R71", "session.go", "TestPrinting_NoSecret|TestPrinting_NothingToFind", []Swap{{
		"\t\tservers = \"\"\n", "\t\t_ = servers\n"}}},
	{"a server that drops us at once is dialled at once", "R50", "dial.go", "TestHosts_DroppedAtOnce_Pauses", []Swap{{
		"pause = pause || h.clock.Now().Sub(h.mu.connected) < time.Second\n", ""}}},
	{"the key to a session that was given up is handed out", "R65", "session.go", "TestVirtual_SessionKey_GivenUp_IsNone", []Swap{{
		"if e == nil || e.isOver() {", "if e == nil {"}}},
}
