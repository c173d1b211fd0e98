package checker

// oracle is one thing that has to be true of every run.
type oracle struct {
	name string
	// holds are the guarantees and faults that it stands for.
	holds string
	check func(x *index, found findings)
}

// findings takes a violation: the message that it is about, "" for none, and what is wrong.
type findings func(message, format string, args ...any)

// The names of the oracles that reports count by themselves.
const (
	nothingLost      = "nothing lost"
	storedIsKept     = "stored is kept"
	published        = "published"
	effectOnce       = "effect once"
	orderOfEffects   = "order of effects"
	orderOfSending   = "order of publications"
	deadHoldTheirKey = "the dead hold their key"
)

// oracles are all there are, in the order in which reports name what they found: causes before
// their consequences.
var oracles = []oracle{
	{"evidence", "without it nothing below proves anything", completeEvidence},
	{"committed is there", "G1, F26", committedIsThere},
	{"nothing from nothing", "G1, F26", nothingFromNothing},
	{nothingLost, "G2, F1, F2, F4, F5, F12, F17", nothingIsLost},
	{published, "G2, F5, F16, F17", everythingIsPublished},
	{storedIsKept, "G5, F1, F9", storedStays},
	{effectOnce, "G4, F5, F6, F10, F26", effectsAreSingle},
	{"effect is the message's", "G4, F3, F21", effectsBelong},
	{"applied has its effect", "G4, F26", appliedHasEffect},
	{"failure leaves no trace", "G4, F2, F7", failuresLeaveNothing},
	{"follow-up with its effect", "G4", followUpsBelong},
	{orderOfEffects, "G3, F4, F11, F16, F25", effectsKeepOrder},
	{orderOfSending, "G3, F4, F16", publicationsKeepOrder},
	{deadHoldTheirKey, "G3, F11", deadCameFirst},
	{"attempts are bounded", "G7, F14, F25", attemptsAreBounded},
	{"the dead had their attempts", "G7, F13, F14", deadHadTheirAttempts},
	{"the innocent live", "G7, F8, F13", innocentsLive},
	{"only failures count", "G7, F13", onlyFailuresCount},
	{"one holder a token", "G6, F10, F15", oneHolderAToken},
	{"tokens grow", "G6, F10", tokensGrow},
	{"leases are kept", "G6, G11", leasesAreKept},
	{"one place each", "G9, F15, F22", onePlaceEach},
	{"caught up", "G2, G7, F11, F13", caughtUp},
	{"memory bounded", "G8, F19", memoryBounded},
	{"one clock", "G11", oneClock},
}
