package mutants

// sessionFile has the plausible mistakes of a session file, which would end a live session or leave
// a dead one.
var sessionFile = []mutant{
	{"the file has one session", "F58", "internal/sessionfile", "TestFile_KeepsSessionsUntilTheyAreRemoved|TestVirtual_F58_GivenUpSessions_AreAllInTheFile", []Swap{{
		"File.Add", "append(f.mu.sessions, k.Hide())", "[]sessionkey.Hidden{k.Hide()}"}}},
	{"a copy of the file counts", "F58", "internal/sessionfile", "TestMismatch|TestOpen_Copy|TestVirtual_F58_FileIsCopied_LiveSessionRemains", []Swap{{
		"header.mismatch", "case h.file != now.file:", "case false:"}}},
	{"a session is written after its first node", "F58", "internal/link", "TestLink_ReportsEachSessionAndItsConfirmedEnd|TestF58_Kill_TheNextProcessHolds", []Swap{{
		"connection.Connected", "l.Opened(l.Key(z))", "time.AfterFunc(time.Second, func() { l.Opened(l.Key(z)) })"}}},
	{"sessions are ended before the file is locked", "F58", "internal/sessionfile", "TestF58_ChildHasTheFile_FileIsInUse", []Swap{{
		"open", "if err = flock(file); err != nil {", "if _ = flock(file); err != nil {"}}},
	{"a free lock is proof enough", "F58", "internal/sessionfile", "TestOpen_OwnerLivesWithoutTheLock", []Swap{{
		"File.read", "&& lives(h.owner):", "&& false:"}}},
	{"the file is emptied when it is closed", "F58", "internal/sessionfile", "TestFile_KeepsSessionsUntilTheyAreRemoved|TestVirtual_F58_ServerIsSilent_ConnectEndsWithItsCtx", []Swap{{
		"File.writeState", "head.owner = process{}", "head.owner, sessions = process{}, nil"}}},
	{"the end asks for a session timeout of its own", "F58", "internal/link", "TestVirtual_F58_EndIsRejected_OneTouch", []Swap{{
		"Link.EndOfDead", "int32(k.Timeout.Milliseconds())", "10_000"}}},
	{"each process touches a session whose end was rejected", "F58", ".", "TestVirtual_F58_EndIsRejected_OneTouch", []Swap{{
		"Session.endSessionLeft", "f.over(k.ID)", "if err == nil { f.over(k.ID) }"}}},
}
