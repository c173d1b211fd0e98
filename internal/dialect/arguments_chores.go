package dialect

// ClaimsPageParams select a page of claims.
type ClaimsPageParams struct {
	After     []byte // the last key of the previous page
	Limit     int
	Retention int64
}

// PurgeClaimsParams say which claims of a page are deleted.
type PurgeClaimsParams struct {
	After, UpTo []byte // keys, the first exclusive, the second inclusive
	Retention   int64
}

// Chore is a task, with the process that performs it or wants to.
type Chore struct{ Name, Holder string }

// PurgeParams say which rows of a table are deleted: the oldest ones.
type PurgeParams struct {
	Retention int64
	Limit     int
}

// NextWaitingParams say where the search for messages without a drainer continues.
type NextWaitingParams struct {
	After int64 // the spool that was searched last
	Age   int64 // minimum time for which a message must have waited
}

// ClaimsPage returns the last key of a page, the number of its keys, and how many of them are older
// than the retention.
func (s *Statements) ClaimsPage(p ClaimsPageParams) Query {
	return Query{Text: s.claimsPage, Args: []any{p.After, p.Limit, p.Retention}}
}

// PurgeClaims deletes the claims of a range of keys that are older than the retention.
func (s *Statements) PurgeClaims(p PurgeClaimsParams) Query {
	return Query{Text: s.purgeClaims, Args: []any{p.After, p.UpTo, p.Retention}}
}

// TakeChore takes a chore for the given time, or renews it, unless another process has it. With 0
// it gives the chore back.
func (s *Statements) TakeChore(c Chore, ttl int64) Query {
	return s.takeChore.with(args{"name": c.Name, "holder": c.Holder, "ttl": ttl})
}

// SaveChore stores the progress of a chore, if the holder has it.
func (s *Statements) SaveChore(c Chore, cursor []byte) Query {
	return Query{Text: s.saveChore, Args: []any{cursor, c.Name, c.Holder}}
}

// PurgeDeadLetters deletes dead letters of a spool.
func (s *Statements) PurgeDeadLetters(spool int64, p PurgeParams) Query {
	return Query{Text: s.purgeDeadLetters, Args: []any{spool, p.Retention, p.Limit}}
}

// PurgeOthers deletes dead letters that belong to no spool.
func (s *Statements) PurgeOthers(p PurgeParams) Query {
	return Query{Text: s.purgeOthers, Args: []any{p.Retention, p.Limit}}
}

// PurgeFailures deletes failures.
func (s *Statements) PurgeFailures(p PurgeParams) Query {
	return Query{Text: s.purgeFailures, Args: []any{p.Retention, p.Limit}}
}

// PurgeHistory deletes messages of a spool from the history.
func (s *Statements) PurgeHistory(spool int64, p PurgeParams) Query {
	return Query{Text: s.purgeHistory, Args: []any{spool, p.Retention, p.Limit}}
}

// NextWaiting returns three columns: the next spool that has messages, or NULL; its name, or NULL
// if no such spool is registered; and 1 if one of its messages could have been handled for that
// long and the spool has no drainer.
func (s *Statements) NextWaiting(p NextWaitingParams) Query {
	return Query{Text: s.nextWaiting, Args: []any{p.Age, p.Age, p.After}}
}
