package mutants

// The package shards.
var sharding = []mutant{
	{"a shard is released before its function has returned", "F59, shards: exclusion", "shards", "TestF59_RandomWorlds|TestVirtual_Func_SlowReturn", []Swap{{
		"worker.round", "o.workErr = w.call(ctx, hold)", "go w.call(ctx, hold); <-ctx.Done()"}}},
	{"a new function does not wait for that of the lost hold", "F59, shards: exclusion", "shards", "TestF59_RandomWorlds|TestVirtual_Func_OfLostHold_NextOneWaits", []Swap{{
		"worker.round", "w.awaitReturn(done)", "if o.isAsked { w.awaitReturn(done) }"}}},
	{"the plan is written without a check", "F59, shards: one planner", "shards", "TestVirtual_Planner", []Swap{{
		"planner.write", "conn.Multi(p.hold.Check(), &zk.SetDataRequest{Path: p.l.plan(), Data: data, Version: version})",
		"conn.Multi(&zk.CheckVersionRequest{Path: p.l.plan(), Version: -1}, &zk.SetDataRequest{Path: p.l.plan(), Data: data, Version: -1})"}}},
	{"the previous owner does not wait for the next one", "shards: short moves", "shards", "TestVirtual_LateReaders", []Swap{{
		"worker.work", "if others {", "if others || true {"}}},
	{"a member that leaves looks like a crash", "shards: short moves", "shards", "TestVirtual_JoinAndLeave", []Swap{{
		"planner.members", "p.left[id] = true", "_ = id"}}},
	{"orphans do not wait for the member to come back", "shards: few moves", "shards", "TestVirtual_SessionLost_BackAtOnce", []Swap{{
		"schedule.decide", "settling := !s.pending.IsZero() && now.Before(due)", "settling := !s.pending.IsZero() && now.Before(due) && isStart"}}},
	{"a member takes the shards of its namesake", "shards: one name", "shards", "TestVirtual_SameName", []Swap{{
		"run.apply", "case m.ID == r.id:", "case true:"}}},
	{"a member keeps its shards and follows no plan", "shards: completeness", "shards", "TestVirtual_Refused", []Swap{{
		"run.follow", "r.stop(err)", ""}}},
}
