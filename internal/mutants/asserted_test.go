package mutants

// asserted has mistakes that fail no test. The assertions of internal/invariants find them: each of
// the tests named here passes, unless the build checks the invariants.
var asserted = []struct {
	mutant
	invariant string
}{
	{mutant{"a node that is found after a lost reply does not count as ours", "I3, F3", ".", "TestVirtual_CreateLost_IsAdopted", []Swap{{
		"nodeCreate.resolve", "stat.Czxid, c.withRoot\nc.reservation.Taken(c.node)", "stat.Czxid, c.withRoot"}}},
		"a hold rests on nodes of nodes.Own (I3)"},
}
