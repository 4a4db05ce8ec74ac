package mutants

// asserted has mistakes that fail no test. The assertions of internal/invariants find them: each of
// the tests named here passes, unless the build checks the invariants.
var asserted = []struct {
	mutant
	invariant string
}{
	{mutant{"a node that is found after a lost reply does not count as ours", "I3, F3", "internal/node", "TestVirtual_CreateLost_IsAdopted", []Swap{{
		"Create.resolve", "stat.Czxid, c.withRoot\nc.reservation.Taken(c.Node)", "stat.Czxid, c.withRoot"}}},
		"a hold rests on nodes of node.Own (I3)"},
}
