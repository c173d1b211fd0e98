package dialect

// Chore is a task, with the process that performs it or wants to.
type Chore struct{ Name, Holder string }

// PurgeParams say which rows of a table are deleted: the oldest ones.
type PurgeParams struct {
	Retention int64
	Limit     int
}

// ClaimsPage returns the last key of a page after a key, the number of its keys, and how many of
// them are older than the retention.
func (s *Statements) ClaimsPage(after []byte, limit int, retention int64) Query {
	return s.query("ClaimsPage", args{"after": after, "limit": limit, "retention": retention})
}

// PurgeClaims deletes the claims of a range of keys, the first exclusive, that are older than the
// retention.
func (s *Statements) PurgeClaims(after, upTo []byte, retention int64) Query {
	return s.query("PurgeClaims", args{"after": after, "up_to": upTo, "retention": retention})
}

// TakeChore takes a chore for the given time, or renews it, unless another process has it. With 0
// it gives the chore back.
func (s *Statements) TakeChore(c Chore, ttl int64) Query {
	return s.query("TakeChore", args{"name": c.Name, "holder": c.Holder, "ttl": ttl})
}

// SaveChore stores the progress of a chore, if the holder has it.
func (s *Statements) SaveChore(c Chore, cursor []byte) Query {
	return s.query("SaveChore", args{"progress": cursor, "name": c.Name, "holder": c.Holder})
}

// PurgeDeadLetters deletes dead letters of a spool.
func (s *Statements) PurgeDeadLetters(spool int64, p PurgeParams) Query {
	return s.query("PurgeDeadLetters", args{"spool": spool, "retention": p.Retention, "limit": p.Limit})
}

// PurgeOthers deletes dead letters that belong to no spool.
func (s *Statements) PurgeOthers(p PurgeParams) Query {
	return s.query("PurgeOthers", args{"retention": p.Retention, "limit": p.Limit})
}

// PurgeFailures deletes failures.
func (s *Statements) PurgeFailures(p PurgeParams) Query {
	return s.query("PurgeFailures", args{"retention": p.Retention, "limit": p.Limit})
}

// PurgeHistory deletes messages of a spool from the history.
func (s *Statements) PurgeHistory(spool int64, p PurgeParams) Query {
	return s.query("PurgeHistory", args{"spool": spool, "retention": p.Retention, "limit": p.Limit})
}

// NextWaiting returns three columns: the next spool after one that has messages, or NULL; its name,
// or NULL if no such spool is registered; and 1 if one of its messages could have been handled for
// that long and the spool has no drainer.
func (s *Statements) NextWaiting(after, age int64) Query {
	return s.query("NextWaiting", args{"age": age, "after": after})
}
