package mutants

// mutant is a plausible mistake in the library.
type mutant struct {
	name    string
	promise string // or the row of the fault matrix, or of Curator's history
	dir     string // of the package, from the repository's root
	tests   string // that find it, each of them, with a bar between
	swaps   []Swap
}

var library = []mutant{
	// The order of the queue, and the end of its counter.
	{"a node past the counter's end is granted", "I1, F34", "internal/queue", "TestPositionOf|TestVirtual_SequenceEnd_NobodyIsGranted", []Swap{{
		"Member.PastTheEnd", "return m.Seq < 0 || m.Seq >= counterEnd }", "return m.Seq < 0 }"}}},
	{"another node with our number is behind us", "I1, F35", "internal/queue", "TestPositionOf|TestPositionOf_RandomQueues_OneIsFirst", []Swap{{
		"PositionOf", "isTwin = isTwin || m.Seq == mine.Seq", "_ = isTwin"}}},
	{"everybody watches the first in the queue", "I8, F40", "internal/queue", "TestPositionOf|TestVirtual_Release_WakesOneWaiter", []Swap{{
		"nearest", "ms[i-1].Seq < m.Seq", "ms[i-1].Seq > m.Seq"}}},
	{"a writer that shares its list with others does not wait for readers", "I1", "internal/queue", "TestSorted_RandomLists_PositionOf", []Swap{{
		"Sorted.PositionOf", "if rule.IsShared() {", "if true {"}}},

	// The rule by which an event grants (isFirstNow).
	{"rule: others may be ahead still", "I1", "internal/queue", "TestIsFirstNow|TestIsFirstNow_EachClause|TestVirtual_WaiterInTheMiddleGivesUp_NobodyIsGranted", []Swap{{
		"isFirstNow", "if k.left != 0 ||", "if"}}},
	{"rule: nothing can come in the predecessor's place", "I1, R73", "internal/queue", "TestIsFirstNow|TestIsFirstNow_EachClause|TestVirtual_WriterTakesTheReadLock_NobodyIsGrantedBesideIt", []Swap{{
		"isFirstNow", "|| k.replaced {", "{"}}},
	{"any event of a node ahead grants", "I1, F31, R22", "internal/queue", "TestMachine|TestIsFirstNow_EachClause|TestVirtual_SpuriousEvents|TestVirtual_Few_NodeIsWrittenTo_WriterWaits", []Swap{{
		"Machine.BlockerEvent", "w, isLast := w.observed(i, isDeletion)", "w, isLast := w.observed(i, true)"}}},
	{"those ahead that are not watched do not count", "I1, I8", "internal/queue", "TestMachine|TestVirtual_Few_MoreWriters_NearestGivesUp_ReaderWaits", []Swap{{
		"Machine.Left", "return w.Blockers -", "return w.watched -"}}},
	{"another node may take the place of the farther ones", "I1, R73", "internal/queue", "TestPositionOf_ReadersAndWriters|TestVirtual_Few_WriterAmongThem_LeavesAReader", []Swap{{
		"Rule.behind", "p.Replaced = slices.ContainsFunc(near,", "p.Replaced = slices.ContainsFunc(near[:1],"}}},
	{"whatever is told of a node of our own session is its deletion", "I1, F27", ".", "TestVirtual_Few_ReleaseRefused_WriterWaits", []Swap{{
		"attempt.await", "return a.rule(i, t == queue.BlockerDeleted)", "return a.rule(i, t != queue.NoHandoff)"}}},
	{"rule: the watch on our own node may be restored", "I3", "internal/queue", "TestIsFirstNow|TestIsFirstNow_EachClause|TestVirtual_OwnWatchNotRestored_NeverGrants", []Swap{{
		"isFirstNow", "|| k.ownConn != k.conn ||", "||"}}},
	{"rule: the watch on a node ahead may be restored", "I3", "internal/queue", "TestIsFirstNow|TestIsFirstNow_EachClause|TestVirtual_PredecessorsWatchRestored_IsGrantedByAList", []Swap{{
		"isFirstNow", "|| k.blockerConn != k.conn {", "{"}}},

	// The wait's state machine, and the grant.
	{"a list from before a lost create counts as ours", "I8, R55", "internal/queue", "TestVirtual_CreateCutInFlight_KeepsItsPlace", []Swap{{
		"Machine.Listed", "if early { // the list", "if early && false { // the list"}}},
	{"whoever is gone when it is to be watched was the front", "I1, R55", "internal/queue", "TestVirtual_PredecessorGoneWhenAsked|TestMachine", []Swap{{
		"Machine.Watched", "\t\tif w.blockerConn != conn {\n", "\t\tif r == Absent {\n\t\t\tw.Blockers = 1\n\t\t}\n\t\tif w.blockerConn != conn {\n"}}},
	{"a waiter sleeps through a reconnect", "F22, F30", "internal/queue", "TestVirtual_WatchesNotRestored_ListsAgain", []Swap{{
		"Machine.Reconnected", "if conn != 0 && conn != w.listConn {", "if conn != 0 && conn != w.listConn && false {"}}},
	{"grant: our own node may go at the last moment", "I3", ".", "TestGrant_OwnNodeDeletedInBetween_QueuesAgain", []Swap{{
		"attempt.grant", "if own := a.onOwn; own != nil && own.HasFired() && own.Event == zk.EventNodeDeleted {", "if false {"}}},
	{"grant: the session may be over", "I3, R57", "internal/link", "TestGrant_SessionOver_GrantsNothing", []Swap{{
		"ZKSession.Hold", "err = z.mu.cause", ""}}},
	{"grant: no look at the lease after a long wait", "I5", "internal/link", "TestVirtual_LongWait_LeaseIsRenewedBeforeTheGrant", []Swap{{
		"ZKSession.Hold", "ok = err == nil && z.mu.lease.Grants(now)", "ok = err == nil"}}},

	// The handoff within a session (TurnAfter).
	{"turn: the next node is not checked", "I1, I3", "internal/node", "TestVirtual_Turn_NodeDeleted_IsNotPassed", []Swap{{
		"Deletion.operations", "{Op: wire.OpCheck, Path: w.Node, Version: -1}", "{Op: wire.OpCheck, Path: x.node, Version: -1}"}}},
	{"turn: a second try does not check", "I1, F9", "internal/node", "TestVirtual_Turn_RetryChecksToo", []Swap{{
		"Deletion.run", "var ended bool", "if w != nil { _, err = x.r.z.Ask(context.Background(), wire.OpDelete, wire.PathVersionRequest{Path: x.node, Version: -1}); if err == nil { w.Notify(queue.HandoffIsOurs) }; failed, w = -1, nil }; var ended bool"}}},
	{"turn: a waiter that gives up passes it", "I1", "internal/node", "TestVirtual_Turn_WaiterGivesUp_PassesNothing", []Swap{{
		"Root.DeleteNode", "root: withRoot, record: record}", "root: withRoot, record: record, handsOff: true}"}}},
	{"turn: to be told that the predecessor is gone is enough", "I1", "internal/queue", "TestMachine|TestVirtual_Turn_WaiterGivesUp_PassesNothing", []Swap{{
		"Machine.HandedOff", "case HandoffIsOurs:", "case HandoffIsOurs, HandoffUnknown, BlockerDeleted:"}}},
	{"turn: passed to one who has several predecessors", "I1, F35", "internal/queue", "TestMachine", []Swap{{
		"Machine.WaitsBehind", "ok && !w.NoHandoff {", "ok {"}}},
	{"turn: those behind a node that cannot be deleted wait for its release", "I8, R25", "internal/node", "TestVirtual_Turn_ReleaseRefused_SomebodyDeletesTheNode", []Swap{{
		"Deletion.refuse", "x.r.nodes.noteRejected(n)", "_ = n"}}},

	// Readers and writers.
	{"readers wait for writers only", "I1", "internal/queue", "TestPositionOf_ReadersAndWriters|TestVirtual_ReadWrite_WhoHoldsBesideWhom", []Swap{{
		"Rule.Blocks", "!IsReader(other.Name) }", "is(other.Name, WriteName) }"}}},
	{"nobody comes in a writer's place", "I1, R73", "internal/queue", "TestPositionOf|TestPositionOf_ReadersAndWriters|TestVirtual_Downgrade_KeepsTheQueueOut|TestVirtual_WriterTakesTheReadLock_NobodyIsGrantedBesideIt", []Swap{{
		"Rule.staysAlone", "\"__lock__\", ReadName) ||", "\"__lock__\", ReadName, WriteName) ||"}}},
	{"a writer that has read passes the turn", "I1, R73", "internal/queue", "TestRule_PassesTurn|TestVirtual_Downgrade_KeepsTheQueueOut", []Swap{{
		"Rule.HandsOff", "return !r.IsShared() && !downgraded }", "return !r.IsShared() }"}}},
	{"readers watch all who are ahead", "I8", "internal/queue", "TestPositionOf_ReadersAndWriters|TestVirtual_RequestBudget_ReadersBehindWriters", []Swap{{
		"Rule.watches", "blockers <= fewWriters && ", ""}}},
	{"downgrade: the writer's node is not checked", "I1", ".", "TestVirtual_Downgrade_WritersNodeGone_IsReported", []Swap{{
		"makeDowngraded", "{Op: wire.OpCheck, Path: w.node, Version: -1}", "{Op: wire.OpCheck, Path: w.root.Path(), Version: -1}"}}},
	{"downgrade: a node that an earlier try made is an error", "F3", ".", "TestVirtual_Downgrade_AnswerLost|TestVirtual_Downgrade_ReadsAgain|TestVirtual_Downgrade_GivenUp", []Swap{{
		"makeDowngraded", "if errors.Is(err, zk.ErrNodeExists) {", "if false {"}}},
	{"downgrade: the reader's node goes when nobody writes", "I1, R73", ".", "TestVirtual_Downgrade_KeepsTheQueueOut|TestVirtual_SimulationOfReadersAndWriters", []Swap{{
		"pair.leavePair", "needed := p.byFirst || p.second != nil", "needed := p.byFirst"}}},
	{"downgrade: the reader's node does not wait for the writer's", "I4", ".", "TestVirtual_Downgrade_WritersNodeGoesFirst", []Swap{{
		"pair.leavePair", "Reaper.DeleteAfter(p.after, p.node)", "Reaper.DeleteAfter(nil, p.node)"}}},

	// Deletions.
	{"a rejected transaction has deleted each node", "I4, I5, F27", "internal/node", "TestVirtual_Multi_Release_OneIsRejected|TestVirtual_Multi_Release_NewRootIsUsed", []Swap{{
		"Reaper.send", "len(xs) > 1 && reply.IsRefusal(err)", "false"}}},
	{"a release that is not awaited and not confirmed is silent", "I4", ".", "TestVirtual_ReleaseAsync_NotConfirmed", []Swap{{
		"releasing.wait", "if !errors.Is(why, ErrClosed) {", "if false {"}}},

	// The lock-delay.
	{"lock-delay: our own record is a grant", "I3, F24", "internal/queue", "TestRecordRead|TestVirtual_LockDelay_GrantUnanswered_NodeDeleted_IsNoGrant", []Swap{{
		"Machine.RecordRead", `case r.Held == "", r.Held == r.Own:`, `case r.Held == r.Own: return w.restart(ToGrant); case r.Held == "":`}}},
	{"delay: a release that meets a version conflict leaves its record", "F47", "internal/node", "TestVirtual_LockDelay_OtherData", []Swap{{
		"Deletion.recordFailed", "x.record.IsKnown = false", "x.record = nil"}}},

	// Creating a node.
	{"a create whose answer was lost made nothing", "I2, F3", "internal/reply", "TestFateOf|TestVirtual_CreateLost_IsAdopted", []Swap{{
		"FateOf", "case f == mux.NeverSent:", "case f == mux.NeverSent || f == mux.NoAnswer:"}}},
	{"a try that looks first believes a server that lags", "I8, F4", ".", "TestVirtual_Try_AfterOneThatFailed_ServerLags_TakesWhatIsFree", []Swap{{
		"plain.probe", "e.Lists.ListSynced(", "e.Lists.List("}}},
	{"a node of another session is adopted", "I3, R30", "internal/node", "TestVirtual_CreateLost_NodeIsOfAnotherSession_IsNotAdopted", []Swap{{
		"Create.resolve", "stat.EphemeralOwner == e.ID:", "true:"}}},
	{"the owner in the answer to a create is not checked", "I3, R31", "internal/node", "TestCreation_IsOurs", []Swap{{
		"Create.isOurs", " && made.Stat.EphemeralOwner == c.e.ID", ""}}},
	{"no sync before the look", "I2, F4", "internal/node", "TestVirtual_CreateLost_NotCommittedYet_IsAdopted", []Swap{{
		"Lists.children", "mux.NewRequest(wire.OpSync, wire.PathRequest{Path: kind.root},", "mux.NewRequest(wire.OpExists, wire.PathWatchRequest{Path: kind.root},"}}},
	{"an id is forgotten when the list that looks for it is refused", "I4, R74, F27", "internal/node", "TestVirtual_CreateLost_RootGivesNoRead_GoesWhenItDoes", []Swap{{
		"ZKSession.FindMade", "e.Reaper.NoteOrphan(root.path, id, withRoot)", ""}}},
	{"a create under way is forgotten when nobody waits", "I4", "internal/node", "TestVirtual_Call_Leaves", []Swap{{
		"Create.finish", "link.Await(context.Background(), e.ZKSession, c.reply)", "link.Await(c.wanted, e.ZKSession, c.reply)"}}},
	{"the token is the sequence number", "I1, R59", "internal/node", "TestVirtual_Token_GrowsAcrossLockRoots", []Swap{{
		"Create.finish", "c.made.Stat.Czxid, c.withRoot", "int64(c.made.Path[len(c.made.Path)-1]), c.withRoot"}}},
	{"new root: a node is first although its create found the root", "I1, F61", ".", "TestVirtual_NewRoot_Contention", []Swap{{
		"attempt.adopt", "if c.MadeRoot {", "if a.d.root.IsContainer() {"}}},
	{"new root: the release leaves it", "I4, F61", ".", "TestVirtual_NewRoot_Cost", []Swap{{
		"noState.giveBack", "d.madeRoot", "false"}}},
	{"new root: a call that has left creates a node", "I2, F61", "internal/node", "TestVirtual_NewRoot_CallLeaves_CreatesNothing", []Swap{{
		"RootUse.SendCreates", "if ctx.Err() != nil {", "if false {"}}},
	{"new root: the transaction's orphan is forgotten", "I4, F61", "internal/node", "TestVirtual_NewRoot_ExecutedLate_IsDeleted", []Swap{{
		"Create.resolve", "case len(found) == 0:", "case len(found) == 0 && c.withRoot:\n\t\treturn nil\n\tcase len(found) == 0:"}}},

	// Deleting it (the reaper), and Release.
	{"the node of a waiter that gave up is left", "I4, R2", ".", "TestVirtual_WaiterInTheMiddleGivesUp_NobodyIsGranted", []Swap{{
		"acquisition.queue", "\t\terr = at.giveUp(err)\n", ""}}},
	{"the reaper is off", "I4, R25", "internal/node", "TestVirtual_DeleteFails_IsTriedAgain", []Swap{{
		"Deletion.run", "if wait && !x.r.z.Pause(backoff.Next()) {", "if _ = backoff; wait {"}}},
	{"NoNode after an unanswered delete is a loss", "F10", "internal/node", "TestVirtual_ReplyToDeleteLost_ReleaseSucceeds", []Swap{{
		"Deletion.tried", "noNode && !x.unanswered", "noNode"}}},
	{"NoNode is success always", "I5, F24", "internal/node", "TestVirtual_NodeDeletedBeforeTheRelease_IsLost|TestDeleteAll_OneIsMissing_TheOthersGo", []Swap{{
		"Deletion.tried", "x.missing = x.missing || noNode && !x.unanswered", ""}}},
	{"the node of a hold that ended without its session is left", "I4, F43", "internal/link", "TestVirtual_ReadTakenFromAHeldNode_OnlyThatHoldEnds", []Swap{{
		"ZKSession.LoseNode", "gone || told {", "gone || told && false {"}}},

	// The lease (lease.go, zksession.go) and its heartbeat.
	{"any answered frame renews the lease", "I5, F12", "internal/lease", "TestLease_QuorumLease|TestVirtual_HolderOnTheMinority_IsNotifiedBeforeTheNextGrant", []Swap{{
		"Lease.Answered", "if l.mode.singleServer { l.extend(f.Sent)", "if true { l.extend(f.Sent)"}}},
	{"the lease starts when the answer comes", "I5", "internal/mux", "TestMux_AnswersAreAnchoredAtTheirSending", []Swap{{
		"Mux.judge", "t.sink.Answered(x.at, t.in.now)", "t.sink.Answered(t.in.now, t.in.now)"}}},
	{"a quorum operation vouches for frames just before it", "I5, F12", "internal/lease", "TestLease_QuorumLease", []Swap{{
		"Lease.Quorum", "cutoff := sent.Add(-l.mode.leaderPing)", "cutoff := sent"}}},
	{"the last frame is taken, not the last but one", "I5", "internal/lease", "TestLease_QuorumLease", []Swap{{
		"Lease.Quorum", "base = max(base, l.exchanges[i-1].Sent)", "base = max(base, l.exchanges[i].Sent)"}}},
	{"a failed multi is a quorum operation", "I5", "internal/mux", "TestMux_QuorumOperations", []Swap{{
		"multiCode", "first.Int32() != int32(wire.OpError) && first.Err() == nil {", "first != nil {"}}},
	{"a shorter session timeout does not count at once", "I5, F38", "internal/lease", "TestLease_TimeoutChangesOnAttachingAgain", []Swap{{
		"Lease.Attached", "if shorter {", "if shorter && false {"}}},
	{"a longer timeout of a later server counts", "F45, I5", "internal/lease", "TestLease_TimeoutChangesOnAttachingAgain", []Swap{{
		"Lease.Attached", "if newSession || shorter {", "if true {"}}},
	{"a late answer brings a lease back that had ended", "I5, F18", "internal/link", "TestVirtual_AnswerAfterTheLeasesEnd_RenewsNothing", []Swap{{
		"ZKSession.answered", "z.LoseIfLate(f.Answered)", ""}}},
	{"an error code in a ping's answer is overlooked", "F39", "internal/mux", "TestMux_PingWithAnErrorCode_IsRefusal|TestVirtual_PingRefused_IsLost", []Swap{{
		"Mux.pingReply", "case code != wire.OK: t.sink.Refused", "case false: t.sink.Refused"}}},

	// The state of the session, and its notifications.
	{"SessionExpired is taken for a reconnect", "I5, F8", "internal/link", "TestVirtual_SessionExpires_IsNotifiedAtOnce", []Swap{{
		"connection.Connected", "old.Lose(why)", "_ = why"}}},
	{"a new session id is taken for a reconnect", "I5, F37", "internal/link", "TestLink_AnotherSessionID_IsAnExpiry", []Swap{{
		"connection.Connected", "case old == nil || old.ID != resp.SessionID:", "case old == nil:"}}},
	{"the connection that reassures falsely is kept", "F12, R41", "internal/link", "TestVirtual_NoQuorum_IsLostAndLeft", []Swap{{
		"Link.Lost", "t.Cut()", "_ = t"}}},

	// Watches and lists.
	{"an answer counts for another connection than its own", "I1, I3, F6", "internal/mux", "TestRequest_IsAnswered_ClientSeesNothing", []Swap{{
		"Mux.received", "Conn: t.Seq, Zxid: h.Zxid", "Conn: t.Seq + 1, Zxid: h.Zxid"}}},

	// An unresponsive server.
	{"a silent server is never left", "F41, I5", "internal/lease", "TestVirtual_FollowerGoesDark_NoHoldIsLost", []Swap{{
		"Silence.Look", "if now < ends {", "if now < ends || true {"}}},
	{"servers that are all slow are left again and again", "F16, R50", "internal/lease", "TestVirtual_AllServersSlow_AreNotLeftAgainAndAgain|TestVirtual_ServersStallNowAndThen_AreNotLeftEachTime", []Swap{{
		"Silence.Look", "s.left, s.last = s.left+1, now", "s.last = now"}}},

	// Sessions that were given up, or should have ended.
	{"a session without an answer goes on", "F23, F51, I6", "internal/link", "TestVirtual_ServerRestartsOlder_WaiterQueuesAgain|TestVirtual_OneWay_WaiterCutOff_NextIsGranted", []Swap{{
		"ZKSession.unheardLocked", "z.mu.served.Add(lease.Unheard(", "z.mu.served.Add(1000 * lease.Unheard("}}},
	{"a place is lost in a short outage", "F22", "internal/lease", "TestVirtual_ServerAway_WaiterKeepsItsPlace", []Swap{{
		"Unheard", "return timeout + IdleRead(timeout) + time.Second", "return timeout"}}},
	{"a session that was given up is taken up again", "I5", "internal/link", "TestLink_GivenUpSession_IsRefused", []Swap{{
		"connection.Connected", "case old.HasEnded(): // given up", "case false: // given up"}}},
	{"the lease ends and the ZooKeeper session does not", "I5, R41, R65", "internal/link", "TestLink_GivenUpSession_IsEnded|TestVirtual_LeaseEnds_SessionIsEndedAtTheServers", []Swap{{
		"connection.Connecting", "return mux.EndIt", "return mux.Attach"}}},

	// Our requests between the client's (the mux).
	{"what was handed to the network was never sent", "I2, F3", "internal/mux", "TestRequest_Fates|TestVirtual_CreateLost_IsAdopted", []Swap{{
		"Mux.disconnect", "if r.written {", "if false {"}}},
	{"a create kept from a session that is over is sent in the next", "I2, F5", "internal/link", "TestLink_RequestOfAnotherSession_IsNotSent", []Swap{{
		"Link.carriesLocked", "l.mu.state.state.Attached() && l.mu.session == z", "l.mu.state.state.Attached()"}}},

	// Owners, handles and calls.
	{"the first release gives the lock back", "I1, R3", ".", "TestLockTable_ReleaseCountsHandles", []Swap{{
		"lockTable.release", "last = len(d.handles) == 0", "last = true"}}},
	{"a lost lock is re-entered", "I1", ".", "TestLockTable_LostHoldIsNotReentered", []Swap{{
		"lockTable.enter", "case d.lost != nil: return nil, d.lost", "case false:"}}},
	{"a hold in the context re-enters without an owner", "I1", ".", "TestVirtual_NoOwner_FanOutUnderAnOuterDo_NoneRuns", []Swap{{
		"lockTable.enter", "case by.owner == (Owner{}) && !by.reads(root):", "case false:"}}},
	{"a released hold in the context hides an outer one", "I6", ".", "TestVirtual_Downgrade_ReentryPastAReleasedRead", []Swap{{
		"Hold.isOf", "h.d.key.path == root && h.d.table.has(h.d)", "h.d.key.path == root"}}},

	// What is visible of a loss.
	{"only who ends the session logs the losses", "R91", ".", "TestLockTable_SeenBeforeTheNotification_IsLoggedOnce", []Swap{
		{"lockData.loseNode", "d.logLost(cause, end)", ""},
		{"lockData.Lose", "if !hadHandles || d.e.HasEnded() {", "if hadHandles {\n\t\td.logLost(cause, end)\n\t}\n\tif !hadHandles || d.e.HasEnded() {"}}},
	{"a release that finds its node gone tells its caller alone", "R91", ".", "TestVirtual_ReleaseFindsTheNodeGone_IsLoggedAndTraced", []Swap{
		{"releasing.wait", "d.logLost(link.ErrNodeGone, d.e.LeaseEnd())", ""}, {"releasing.wait", "d.traceLoss(err, r.began)", ""}}},
	{"a loss is told before the acquire's end", "Trace", ".", "TestVirtual_LostDuringAcquireEnd_IsReportedAfterIt", []Swap{{
		"traced.lost", "h.lostAt = err, at; h.first.isOpen {", "h.lostAt = err, at; true {"}}},
	{"a hold's end is told before its loss", "Trace", ".", "TestVirtual_HoldLostBlocks_NobodyWaits", []Swap{{
		"traced.isDueLocked", "c.hold.loss != nil && !c.hold.isTold {", "false {"}}},
	{"an owner's calls are served at once", "I2", ".", "TestLockTable_OneCallAtATime", []Swap{{
		"lockTable.enter", "return d.acquiring, h.busyLocked(d.acquiring)", "return d.acquiring, nil"}}},

	// The check of a sequencer.
	{"sequencer: a node that waits holds", "CheckSequencer", "internal/queue", "TestSeenAt|TestVirtual_CheckSequencer_NodeThatWaits", []Swap{{
		"SeenAt", "ByNumber(m, ms[me]) < 0 && rule.Blocks(m)", "false"}}},
	{"sequencer: a part of the leases will do", "CheckSequencer", "internal/queue", "TestSeenLeases|TestVirtual_CheckSequencer_OneLeaseOfSeveralIsGone", []Swap{{
		"SeenLeases", "found != k", "found == 0"}}},
	{"sequencer: another server's list will do", "CheckSequencer", ".", "TestSequencer_Verdict", []Swap{{
		"found.unclear", "case f.conn != conn:", "case f.conn == 0:"}}},
}
