package dialect

import "math"

// Never is the time of what does not exist, in [Ages].
const Never = math.MaxInt64

// Ages are times of a spool and of its pending messages, by the database's clock.
type Ages struct {
	Clock                      int64  // now
	Ready, Scheduled, Retrying int64  // when the oldest one of the state was written
	Due                        int64  // the first time for which one waits
	Paused                     int64  // since when an operator has paused the spool
	Batches                    string // by which rule messages are due, see package due
}

// Columns returns where the result of [Statements.Ages] goes.
func (a *Ages) Columns() []any {
	return []any{&a.Clock, &a.Ready, &a.Scheduled, &a.Retrying, &a.Due, &a.Paused, &a.Batches}
}

// Oldest returns when the oldest message was written.
func (a *Ages) Oldest() int64 { return min(a.Ready, a.Scheduled, a.Retrying) }

// Since returns for how many microseconds a time has passed: 0 if it does not exist, or is in the
// future.
func (a *Ages) Since(at int64) int64 {
	if at == Never {
		return 0
	}
	return max(0, a.Clock-at)
}
