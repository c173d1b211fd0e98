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

// Since returns for how many microseconds a time has passed: 0 if it does not exist, or is in the future.
func (a *Ages) Since(at int64) int64 {
	if at == Never {
		return 0
	}
	return max(0, a.Clock-at)
}

// CountUpTo counts the messages and dead letters of spools, each number up to a limit: id of the
// spool, ready, waiting, due among the waiting, parked, done, retrying, failing among these, dead
// letters, not resolved among these. It reads that many of each.
func (s *Statements) CountUpTo(spools []int64, limit int) []Query {
	return s.ofSpools(s.countUpTo, spools, 9, limit)
}

// CountFew returns, on MySQL, the same of all spools each of whose numbers is below the limit, and
// nothing of others, in one statement.
func (s *Statements) CountFew(spools []int64, limit int) []Query {
	return s.ofFew(s.countFew, spools, limit)
}

// LanePage is a part of the messages of a lane that have one state.
type LanePage struct {
	Spool int64
	State int
	Lane  int
	After int64 // the last id of the previous page
	Limit int
}

// ReadyPage returns the number of ready messages of a page, and the last id. State is not used.
func (s *Statements) ReadyPage(p LanePage) Query {
	return Query{Text: s.readyPage, Args: []any{p.Spool, p.Lane, p.After, p.Limit}}
}

// WaitingPage returns the number of waiting messages of a page, the last id, and the numbers of due, failing and parked ones.
func (s *Statements) WaitingPage(p LanePage) Query {
	return Query{Text: s.waitingPage, Args: []any{p.Spool, p.State, p.Lane, p.After, p.Limit}}
}

// LettersPage returns the next dead letters in the order of their ids, in groups: origin, spool or 0, consumer, number, highest
// id, number of those that are not resolved.
func (s *Statements) LettersPage(after int64, limit int) Query {
	return Query{Text: s.lettersPage, Args: []any{after, limit}}
}

// EndOfPage returns when the last one of the messages was done that were done next after a time, or no row if there are fewer than the limit.
func (s *Statements) EndOfPage(spool, after int64, limit int) Query {
	return Query{Text: s.endOfPage, Args: []any{spool, after, limit - 1}}
}

// HistoryPage returns how many messages were done after a time and until another.
func (s *Statements) HistoryPage(spool, after, until int64) Query {
	return Query{Text: s.historyPage, Args: []any{spool, after, until}}
}
