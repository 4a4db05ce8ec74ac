package mutants

// Package fence's: the comparison, the record, and what a refusal says.
var fences = []mutant{
	{"fence: an equal token is stale", "a hold may come again", "fence/guard.go", "TestGuard_ComparesByMode|FuzzGuard|TestHTTP_LateOnesAreRefused", []Swap{{
		"	if c.Token < seen {", "	if c.Token <= seen {"}}},
	{"fence: a writer is compared with writers", "fencing", "fence/guard.go", "TestGuard_ComparesByMode|FuzzGuard|TestGuard_ManyGoroutines_NoStaleOneIsAdmitted", []Swap{{
		"		seen = max(m.Exclusive, m.Shared)\n", "		seen = m.Exclusive\n"}}},
	{"fence: a reader is compared with readers", "readers are not ordered", "fence/guard.go", "TestGuard_ComparesByMode|FuzzGuard", []Swap{{
		"	if !c.Shared {\n", "	if true {\n"}}},
	{"fence: a reader's mark is the writer's", "readers are not ordered", "fence/guard.go", "TestGuard_ComparesByMode|FuzzGuard", []Swap{{
		"	if c.Shared {\n", "	if c.Shared && false {\n"}}},
	{"fence: an earlier reader lowers the mark", "fencing", "fence/guard.go", "TestGuard_ComparesByMode|FuzzGuard", []Swap{{
		"		m.Shared = max(m.Shared, c.Token)\n", "		m.Shared = c.Token\n"}}},
	{"fence: nothing is recorded", "fencing", "fence/guard.go", "TestGuard_ComparesByMode|FuzzGuard|TestGuard_StoreFails_NothingIsAdmitted", []Swap{{
		"		if next == had {\n", "		if next != had || next == had {\n"}}},
	{"fence: a lost swap is enough", "fencing", "fence/guard.go", "TestGuard_AnotherIsFaster_NoMarkIsLowered|TestGuard_NeverItsTurn_EndsWithTheContext", []Swap{{
		"		} else if swapped {\n", "		} else if swapped || !swapped {\n"}}},
	{"fence: a swap does not compare", "fencing", "fence/memory.go", "TestGuard_AnotherIsFaster_NoMarkIsLowered", []Swap{{
		"	case now != had:\n", "	case now != had && false:\n"}}},
	{"fence: the first one is known", "it says what it cannot know", "fence/guard.go", "TestGuard_Restart_SaysWhatItCannotKnow|TestGuard_ComparesByMode|TestGate_Check", []Swap{{
		"	return seen > 0, nil\n", "	return true, nil\n"}}},
	{"fence: the memory grows", "I7", "fence/memory.go", "TestMemory_Full_ForgetsNothing|FuzzGuard", []Swap{{
		"len(m.mu.marks) >= m.limit:", "len(m.mu.marks) > m.limit:"}}},
	{"fence: a full memory refuses those that it has", "fencing", "fence/memory.go", "TestMemory_Full_ForgetsNothing|FuzzGuard", []Swap{{
		"	case !there && len", "	case (!there || there) && len"}}},
	{"fence: an overtaken claim never ends", "I6", "fence/guard.go", "TestGuard_NeverItsTurn_EndsWithTheContext", []Swap{{
		"	if ctx.Err() != nil {\n", "	if ctx.Err() != nil && g.store == nil {\n"}}},
	{"fence: any lock's sequencer will do", "fencing", "fence/gate.go", "TestHTTP_LateOnesAreRefused", []Swap{{
		"	if c.Resource != lock {\n", "	if c.Resource == \"\" {\n"}}},
	{"fence: one of two sequencers is chosen", "fencing", "fence/gate.go", "TestHTTP_TwoSequencers_AreRefused", []Swap{{
		"	case 1:\n	default:\n", "	case 1, 2:\n	default:\n"}}},
	{"fence: recorded before it is checked", "a lie locks nobody out", "fence/gate.go", "TestGate_Check", []Swap{{
		"		_, known, err := g.Guard.look(ctx, c) //", "		known, err := g.Guard.Admit(ctx, c) //"}}},
	{"fence: who is late is told to come back", "412", "fence/http.go", "TestHTTP_LateOnesAreRefused|TestGate_Check", []Swap{{
		"http.StatusPreconditionFailed, err", "http.StatusServiceUnavailable, err"}}},
	{"fence: without a sequencer is late", "428", "fence/http.go", "TestHTTP_LateOnesAreRefused", []Swap{{
		"http.StatusPreconditionRequired, err", "http.StatusPreconditionFailed, err"}}},
	{"fence: a client reads what the store says", "nothing secret", "fence/http.go", "TestHTTP_NobodyKnows_503", []Swap{{
		"\"fence: cannot tell whether this request is late\"", "err.Error()"}}},
	{"fence: a refused request goes on", "fencing", "fence/http.go", "TestHTTP_LateOnesAreRefused|TestHTTP_NobodyKnows_503", []Swap{{
		"				http.Error(w, why, status)\n				return\n", "				http.Error(w, why, status)\n"}}},
	{"fence: the caller's request is changed", "RoundTripper", "fence/http.go", "TestHTTP_LateOnesAreRefused", []Swap{{
		"	r = r.Clone(r.Context()) //", "	//"}}},
	{"fence: no row changed is stale", "the row-count trap", "fence/sql.go", "TestTable_Answers", []Swap{{
		"	case seen.Int64 > token:\n", "	case seen.Int64 >= token:\n"}}},
	{"fence: no row changed is not stale", "fencing", "fence/sql.go", "TestTable_Answers|TestTable_Statements", []Swap{{
		"	case seen.Int64 > token:\n", "	case seen.Int64 > token+1000:\n"}}},
	{"fence: the second look is at the snapshot", "fencing", "fence/sql.go", "TestTable_Statements", []Swap{{
		"arg, lock := \"?\", \" FOR UPDATE\"", "arg, lock := \"?\", \"\""}}},
	{"fence: a later token is written over", "fencing", "fence/sql.go", "TestTable_Statements", []Swap{{
		"+\" <= \"+at(3)", "+\" >= \"+at(3)"}}},
}
