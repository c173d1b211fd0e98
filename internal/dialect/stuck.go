package dialect

// KeysOfLane select the ready messages of some keys of a lane, among the first ones after an id.
type KeysOfLane struct {
	Lane  int
	After int64
	Keys  []int64 // hashes
}

// Head is where the first message of a key is.
type Head struct {
	Lane int
	ID   int64
}

// firstFailure and lastError are of a message m. They use the index of failures by subject.
const (
	firstFailure = `(SELECT f.failed_at FROM {failures} f WHERE f.subject = {subject of m} ORDER BY f.subject, f.id LIMIT 1)`
	lastError    = `(SELECT f.error FROM {failures} f WHERE f.subject = {subject of m} ORDER BY f.subject DESC, f.id DESC LIMIT 1)`
)

// stuck sets the statements about keys whose first message has failed. A retrying message keeps the later messages of its key
// waiting, so nearly each one is the first of its key.
func (s *Statements) stuck() {
	const failures = `COALESCE(` + firstFailure + `, 0), COALESCE(` + lastError + `, '')`

	// Each part walks the index of a lane in its order, and stops at the limit. Failures are only
	// looked for of what is left of all lanes.
	s.stuckHeads = [2]string{`
SELECT m.*, ` + failures + `
FROM (
`, `
SELECT * FROM (
	SELECT ` + pendingColumns + `, m.key_hash
	FROM {retrying} m {by ready}
	WHERE m.spool = ? AND m.state = 2 AND m.lane = ? AND m.key_hash IS NOT NULL
	  AND ` + unblocked + `
	ORDER BY m.id LIMIT ?) h`}

	s.readyHead = `
SELECT ` + pendingColumns + `, m.key_hash, ` + failures + `
FROM {ready} m
WHERE m.spool = ? AND m.state = 0 AND m.lane = ? AND m.id = ?`

	s.waitingOfKeys = `
SELECT MIN(w.lane), w.wanted, MIN(w.id), COUNT(*)
FROM (
	SELECT m.lane, m.id, CASE WHEN m.key_hash IN ({numbers ?}) THEN m.ordering_key END AS wanted
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

// StuckHeads returns the retrying messages of the first lanes, [Lanes] for all of them, that have a
// key and no earlier retrying message of it, in the order of their ids and up to a limit: the
// columns of [Statements.Pending], the hash of the key, the time of the first failure or 0, and the
// text of the last one.
func (s *Statements) StuckHeads(spool int64, lanes, limit int) Query {
	all := make([][]any, lanes)
	for lane := range all {
		all[lane] = []any{spool, lane, limit}
	}
	heads := union(s.stuckHeads[1], all)
	return Query{Text: s.marks(s.stuckHeads[0] + heads.Text + "\nORDER BY id LIMIT ?) m\nORDER BY m.id"), Args: append(heads.Args, limit)}
}

// ReadyHeads returns the same columns of those of these messages that are ready.
func (s *Statements) ReadyHeads(spool int64, heads []Head) Query {
	all := make([][]any, len(heads))
	for i, h := range heads {
		all[i] = []any{spool, h.Lane, h.ID}
	}
	query := union(s.readyHead, all)
	query.Text = s.marks(query.Text)
	return query
}

// WaitingOfKeys returns each of the keys with ready messages: its lane, itself, the lowest id of
// these and their number, among so many messages of each lane. A row with NULL is about the
// messages of a lane's other keys, and so is one of a key that has the hash of one of them.
func (s *Statements) WaitingOfKeys(spool int64, of []*KeysOfLane, limit int) Query {
	all := make([][]any, len(of))
	for i, l := range of {
		all[i] = []any{s.lists.numbers(l.Keys), spool, l.Lane, l.After, limit}
	}
	query := union(s.waitingOfKeys, all)
	query.Text = s.marks(query.Text)
	return query
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
