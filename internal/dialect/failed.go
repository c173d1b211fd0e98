package dialect

import "encoding/hex"

// Failed says what becomes of a message that has failed: it waits for another attempt, or it is
// dead.
type Failed struct {
	AsRead
	Delay          int64 // how long it waits from now, unless it is dead
	AddAttempts    int
	TakeBackStarts int
	Dead           bool
	Cause          Cause // of its death
	Noted          bool  // the error is recorded among the failures of the message
	Attempt        int   // that is recorded with it; 0 for a note
	Error          string
}

// FailedQueries settle messages that failed, as [Statements.SettleFailed] says. A text that is not
// needed is empty.
type FailedQueries struct {
	// Together does everything, and returns the number of settled messages. Where it is empty, the
	// others are executed one after the other.
	Together Query
	Retry    Query // changes those that wait for another attempt
	Note     Query // records the failures
	Bury     Query // copies dead messages to the dead letters
	Remove   Query // removes them; the last one, since it locks lanes
}

// SettleFailed settles messages that are as they were read, and whose lane is held under their
// token: it makes them wait for another attempt, or moves them to the dead letters, and records
// their failures. Their rows must be locked. The condition contains the old number of attempts: run
// twice, it settles a message once. The number of starts may have decreased since the message was
// read, if the message came back to the previous holder of its lane, but it cannot have increased.
func (s *Statements) SettleFailed(spool int64, process string, failed []Failed) FailedQueries {
	rows := make([]failedRow, len(failed))
	var dead []Ref
	for i, f := range failed {
		rows[i] = failedRow{
			State: f.State, Lane: f.Lane, Token: f.Token, ID: f.ID, CreatedAt: f.CreatedAt, Attempts: f.Attempts,
			Least: f.LeastStarts, Most: f.MostStarts, Delay: f.Delay, Added: f.AddAttempts, Back: f.TakeBackStarts, Error: f.Error,
		}
		if f.Dead {
			rows[i].Cause = &failed[i].Cause
			dead = append(dead, f.Ref)
		}
		if f.Noted {
			rows[i].Attempt = &failed[i].Attempt
		}
		if s.Kind == MySQL {
			rows[i].Error = hex.EncodeToString([]byte(f.Error))
		}
	}
	values := args{"spool": spool, "process": process, "failed": List(rows)}
	if s.has("SettleFailed") {
		return FailedQueries{Together: s.query("SettleFailed", values)}
	}
	queries := FailedQueries{Note: s.query("NoteFailed", values)}
	if len(dead) < len(failed) {
		queries.Retry = s.query("RetryFailed", values)
	}
	if len(dead) > 0 {
		queries.Bury, queries.Remove = s.query("BuryFailed", values), s.Remove(spool, dead)
	}
	return queries
}

// failedRow is a [Failed] as the statements take it. On MySQL the error is hexadecimal, so that no
// setting of a session can make anything else of it.
type failedRow struct {
	State     int    `json:"state"`
	Lane      int    `json:"lane"`
	Token     int64  `json:"token"`
	ID        int64  `json:"id"`
	CreatedAt int64  `json:"created_at"`
	Attempts  int    `json:"attempts"`
	Least     int    `json:"least"`
	Most      int    `json:"most"`
	Delay     int64  `json:"delay"`
	Added     int    `json:"added"`
	Back      int    `json:"back"`
	Cause     *Cause `json:"cause"`   // nil: not dead
	Attempt   *int   `json:"attempt"` // nil: no failure is recorded
	Error     string `json:"error"`
}
