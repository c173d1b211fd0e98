package dialect

// Cause says why a message became a dead letter. The numbers are stored.
type Cause int

// The causes. Letters that were stored before there was a column for the cause have none.
const (
	CauseUnknown    Cause = iota
	CauseAttempts         // its attempts are used up
	CausePermanent        // its error says that no retry can cure it
	CauseCrash            // it was handed out too often without an end: it crashes its process
	CauseUnreadable       // it cannot be decoded
	CauseOperator         // an operator buried it
)
