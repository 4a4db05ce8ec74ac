package mutants

// The package shards.
var sharding = []mutant{
	{"a shard is released before its function has returned", "F59, shards: exclusion", "shards", "TestF59_RandomWorlds|TestVirtual_Func_SlowReturn", []Swap{{
		"worker.round", "o.workErr = w.call(ctx, hold)", "go w.call(ctx, hold); <-ctx.Done()"}}},
	{"a new function does not wait for that of the lost hold", "F59, shards: exclusion", "shards", "TestF59_RandomWorlds|TestVirtual_Func_OfLostHold_NextOneWaits", []Swap{{
		"worker.round", "w.awaitReturn(done)", "if o.isAsked { w.awaitReturn(done) }"}}},
	{"the plan is written without a check", "F59, shards: one planner", "shards", "TestVirtual_Planner", []Swap{{
		"planner.write", "conn.Multi(p.hold.Checks()[0], &zk.SetDataRequest{Path: p.l.plan(), Data: data, Version: version})",
		"conn.Multi(&zk.CheckVersionRequest{Path: p.l.plan(), Version: -1}, &zk.SetDataRequest{Path: p.l.plan(), Data: data, Version: -1})"}}},
	{"the previous owner does not wait for the next one", "shards: short moves", "shards", "TestVirtual_LateReaders", []Swap{{
		"worker.work", "if others {", "if others || true {"}}},
	{"a member that leaves looks like a crash", "shards: short moves", "shards", "TestVirtual_JoinAndLeave", []Swap{{
		"planner.members", "p.left[id] = true", "_ = id"}}},
	{"orphans do not wait for the member to come back", "shards: few moves", "shards", "TestVirtual_SessionLost_BackAtOnce", []Swap{{
		"schedule.decide", "settling := !s.pending.IsZero() && now.Before(due)", "settling := !s.pending.IsZero() && now.Before(due) && isStart"}}},
	{"the number of shards is not checked behind the own node", "shards: one number", "shards", "TestVirtual_SetShards_WhileAMemberJoins", []Swap{{
		"run.planW", "err = r.l.ensure(r.n)", ""}}},
	{"a member takes the shards of its namesake", "shards: one name", "shards", "TestVirtual_SameName", []Swap{{
		"run.apply", "case m.ID == r.id:", "case true:"}}},
	{"a member keeps its shards and follows no plan", "shards: completeness", "shards", "TestVirtual_SetShards_WhileAMemberIsCutOff", []Swap{{
		"run.follow", "r.stop(err)", ""}}},
	{"a shard that is rejected ends the member", "F62, shards: small faults", "shards", "TestVirtual_Scopes", []Swap{{
		"worker.isRejected", "(isAll || !isRejected(o.err))", "isAll == isAll"}}},
	{"a member that cannot be read ends the planner's round", "F62, shards: small faults", "shards", "TestVirtual_Scopes", []Swap{{
		"planner.read", "err == nil || isRejected(err)", "err == nil"}}},
	{"a planner that may not write stays the planner", "F62, shards: small faults", "shards", "TestVirtual_PlannerMayNotWrite", []Swap{{
		"run.lead", "isRejected(err) && time.Since(r.yielded) > yieldAgain", "false"}}},
	{"the shards of a crash go to members that are not ready", "R128, shards: small faults", "shards", "TestVirtual_CrashLoop", []Swap{{
		"schedule.decide", "return next(p, n, ready, keepers(p, all, ready), isBalanced)", "return next(p, n, all, nil, isBalanced)"}}},
	{"a worker queues in a session in which the plan was not read", "R129, shards: one number", "shards", "TestVirtual_SetShards_WhileAMemberIsCutOff", []Swap{{
		"run.isCurrent", "r.mu.session == session", "session != 0"}}},
}
