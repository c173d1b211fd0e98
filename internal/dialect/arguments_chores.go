package dialect

import "strings"

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
	return Query{Text: s.claimsPage, Args: []any{after, limit, retention}}
}

// PurgeClaims deletes the claims of a range of keys, the first exclusive, that are older than the
// retention.
func (s *Statements) PurgeClaims(after, upTo []byte, retention int64) Query {
	return Query{Text: s.purgeClaims, Args: []any{after, upTo, retention}}
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

// NextWaiting returns three columns: the next spool after one that has messages, or NULL; its name,
// or NULL if no such spool is registered; and 1 if one of its messages could have been handled for
// that long and the spool has no drainer.
func (s *Statements) NextWaiting(after, age int64) Query {
	return s.nextWaiting.with(args{"age": age, "after": after})
}

// purges sets the statements that delete the oldest rows of a table.
func (s *Statements) purges() {
	s.purgeDeadLetters = s.Kind.purge("{dead_letters}", "id", "spool = ? AND ", "died_at", "died_at")
	s.purgeOthers = s.Kind.purge("{dead_letters}", "id", "spool IS NULL AND ", "died_at", "died_at")
	s.purgeFailures = s.Kind.purge("{failures}", "id", "", "failed_at", "failed_at")
	s.purgeHistory = s.Kind.purge("{history}", "(id, done_at)", "spool = ? AND ", "done_at", "done_at")
	s.purgeAudit = s.Kind.purge("{audit}", "id", "", "acted_at", "acted_at")
	s.purgeReceipts = s.Kind.purge("{receipts}", "receipt_key", "state = ? AND ", "due_at", "state, due_at, receipt_key")
}

// purge deletes the rows of a table with this key that are older than a time, as many as the limit
// says, in the order of an index. On PostgreSQL the clock is in a subquery, which runs once: if the
// time were compared with a volatile function, the index would be read to its end.
func (k Kind) purge(table, key, of, time, order string) string {
	old := ` FROM ` + table + ` WHERE ` + of + time + ` < `
	if k == MySQL {
		return `DELETE` + old + `{now} - ? ORDER BY ` + order + ` LIMIT ?`
	}
	before, limit := `(SELECT {now}) - ?::bigint`, `?`
	if k == SQLite {
		before, limit = `{now} - ?`, `? + 0`
	}
	return `
DELETE FROM ` + table + ` WHERE ` + key + ` IN (
	SELECT ` + strings.Trim(key, "()") + old + before + ` ORDER BY ` + order + ` LIMIT ` + limit + `)`
}
