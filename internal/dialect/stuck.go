package dialect

// StuckParams select messages of a lane.
type StuckParams struct {
	Spool int64
	Lane  int
	After int64 // ids, exclusive
	Limit int
}

// WaitingOfKeysParams select the ready messages of some keys of a lane, among the first ones after an id.
type WaitingOfKeysParams struct {
	StuckParams
	Keys []int64 // hashes
}

// firstFailure and lastError are of a message m. They use the index of failures by subject.
const (
	firstFailure = `(SELECT f.failed_at FROM {failures} f WHERE f.subject = {subject of m} ORDER BY f.subject, f.id LIMIT 1)`
	lastError    = `(SELECT f.error FROM {failures} f WHERE f.subject = {subject of m} ORDER BY f.subject DESC, f.id DESC LIMIT 1)`
)

// stuck sets the statements about keys whose first message has failed. A retrying message keeps the later messages of its key
// waiting, so nearly each one is the first of its key.
func (s *Statements) stuck() {
	// Walks the index by lane in its order, and stops at the limit.
	s.stuckHeads = `
SELECT m.id, m.key_hash, m.ordering_key
FROM {retrying} m {by ready}
WHERE m.spool = ? AND m.state = 2 AND m.lane = ? AND m.id > ? AND m.key_hash IS NOT NULL
  AND ` + unblocked + `
ORDER BY m.id LIMIT ?`

	s.headOfKey = `
SELECT ` + pendingColumns + `, COALESCE(` + firstFailure + `, 0), COALESCE(` + lastError + `, '')
FROM {messages} m
WHERE m.spool = ? AND m.state IN (0, 2) AND m.lane = ? AND m.id = ?`

	s.waitingOfKeys = `
SELECT w.wanted, MIN(w.id), COUNT(*)
FROM (
	SELECT m.id, CASE WHEN m.key_hash IN ({numbers ?}) THEN m.ordering_key END AS wanted
	FROM {messages} m {by ready}
	WHERE m.spool = ? AND m.state = 0 AND m.lane = ? AND m.id > ?
	ORDER BY m.id LIMIT ?) w
GROUP BY w.wanted`

	// Uses the index of retrying messages by key, whose entries are few and side by side.
	failed := rowsOf{"{retrying} m {by key}", " AND m.state = 2 AND m.key_hash IS NOT NULL", "ORDER BY m.key_hash, m.id"}
	s.countStuck, s.countFewStuck = s.upToLimit(
		column{"COUNT(DISTINCT %s)", "m.ordering_key", failed},
		column{"COALESCE({now} - MIN(%s), 0)", "COALESCE(" + firstFailure + ", m.created_at)", failed})
}

// StuckHeads returns id, hash and key of the retrying messages of a lane that have a key and no earlier retrying message
// of it, in the order of their ids.
func (s *Statements) StuckHeads(p StuckParams) Query {
	return Query{Text: s.stuckHeads, Args: []any{p.Spool, p.Lane, p.After, p.Limit}}
}

// HeadOfKey returns the columns of [Statements.Pending], the time of the first failure and the text of the last one, of a ready or
// retrying message of a lane.
func (s *Statements) HeadOfKey(l Lookup, lane int) Query {
	return Query{Text: s.headOfKey, Args: []any{l.Spool, lane, l.ID}}
}

// WaitingOfKeys returns each of the keys with ready messages in a lane, the lowest id of these and
// their number. A row with NULL is about the messages of other keys, and so is one of a key that
// has the hash of one of them.
func (s *Statements) WaitingOfKeys(p WaitingOfKeysParams) Query {
	return Query{Text: s.waitingOfKeys, Args: []any{s.lists.numbers(p.Keys), p.Spool, p.Lane, p.After, p.Limit}}
}

// CountStuck returns of each spool its id, how many keys have a retrying message, and how long ago
// the first of these messages failed, among so many messages.
func (s *Statements) CountStuck(spools []int64, limit int) []Query {
	return s.ofSpools(s.countStuck, spools, 2, limit)
}

// CountFewStuck is CountStuck for those that have fewer such messages, as [Statements.CountFew].
func (s *Statements) CountFewStuck(spools []int64, limit int) []Query {
	return s.ofFew(s.countFewStuck, spools, limit)
}
