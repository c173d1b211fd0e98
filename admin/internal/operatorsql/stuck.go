package operatorsql

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

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

// stuck sets the statements about keys whose first message has failed. A retrying message keeps the
// later messages of its key waiting, so nearly each one is the first of its key.
func (s *Statements) stuck() {
	const failures = `COALESCE(` + firstFailure + `, 0), COALESCE(` + lastError + `, '')`

	// Failures are only looked for of what is left of all lanes.
	const columns = pendingColumns + `, m.key_hash`
	s.stuckHeads = s.Named(`
SELECT m.*, ` + failures + `
FROM (
	SELECT * FROM (` + s.ofLanes(columns, "{retrying} m {by ready}", `m.state = 2 AND m.key_hash IS NOT NULL AND `+dialect.Unblocked) + `) h
	ORDER BY id LIMIT :most) m
ORDER BY m.id`)

	s.readyHeads = s.Named(`
SELECT ` + columns + `, ` + failures + `
FROM {listed}
WHERE m.spool = :spool AND m.state = 0`)

	s.waitingOfKeys = s.Named(`
SELECT MIN(w.lane), w.wanted, MIN(w.id), COUNT(*)
FROM (` + s.ofLanes(`m.lane, m.id, CASE WHEN m.key_hash IN ({numbers :keys}) THEN m.ordering_key END AS wanted`,
		"{ready} m {by ready}", `m.state = 0`) + `) w
GROUP BY w.lane, w.wanted`)

	// Uses the index of retrying messages by key, whose entries are few and side by side.
	failed := rowsOf{"{retrying} m {by key}", " AND m.state = 2 AND m.key_hash IS NOT NULL", "ORDER BY m.key_hash, m.id"}
	s.countStuck, s.countFewStuck = s.upToLimit(
		column{"COUNT(DISTINCT %s)", "m.ordering_key", failed},
		column{"COALESCE({now} - MIN(%s), 0)", "COALESCE(" + firstFailure + ", m.created_at)", failed})
}

// ofLanes returns messages m of a spool, the first ones of each lane after an id. Each lane is read
// along its index, up to a limit. MariaDB, which has no LATERAL, has the text once for each.
func (s *Statements) ofLanes(columns, from, where string) string {
	text := func(lane, after string) string {
		return `
	FROM ` + from + `
	WHERE m.spool = :spool AND m.lane = ` + lane + ` AND m.id > ` + after + ` AND ` + where + `
	ORDER BY m.id LIMIT {int :most}`
	}
	if s.Kind == dialect.PostgreSQL {
		return `
	SELECT r.* FROM unnest(:after::bigint[]) WITH ORDINALITY AS c(after, n)
	CROSS JOIN LATERAL (
	SELECT ` + columns + text("(c.n - 1)::smallint", "c.after") + `) r`
	}
	if s.Kind == dialect.SQLite {
		return `
	SELECT ` + columns + ` FROM json_each(:after) c CROSS JOIN {messages} m ON m.id IN (
	SELECT m.id` + text("c.key", "c.value") + `)`
	}
	lanes := make([]string, dialect.Lanes)
	for lane := range lanes {
		lanes[lane] = `
	(SELECT ` + columns + text(strconv.Itoa(lane), fmt.Sprintf("CAST(JSON_VALUE(CAST(:after AS CHAR), '$[%d]') AS SIGNED)", lane)) + `)`
	}
	return strings.Join(lanes, " UNION ALL")
}

// StuckHeads returns the retrying messages that have a key and no earlier retrying message of it,
// in the order of their ids and up to a limit: the columns of [Statements.Search], the hash of the
// key, the time of the first failure or 0, and the text of the last one.
func (s *Statements) StuckHeads(spool int64, limit int) dialect.Query {
	var start int64
	var after [dialect.Lanes]*int64
	for lane := range after {
		after[lane] = &start
	}
	return s.stuckHeads.With(args{"spool": spool, "after": s.Nullable(after[:]), "most": limit})
}

// ReadyHeads returns the same columns of those of these messages that are ready.
func (s *Statements) ReadyHeads(spool int64, heads []Head) dialect.Query {
	lanes, ids := make([]int64, len(heads)), make([]int64, len(heads))
	for i, h := range heads {
		lanes[i], ids[i] = int64(h.Lane), h.ID
	}
	return s.readyHeads.With(args{"spool": spool, "lanes": s.Numbers(lanes), "ids": s.Numbers(ids)})
}

// WaitingOfKeys returns each of the keys, which are hashes, with ready messages: its lane, itself,
// the lowest id of these and their number, among so many messages of each lane after an id. A row
// with NULL is about the messages of a lane's other keys, and so is one of a key that has the hash
// of one of them.
func (s *Statements) WaitingOfKeys(spool int64, keys []int64, after [dialect.Lanes]*int64, limit int) dialect.Query {
	return s.waitingOfKeys.With(args{
		"spool": spool, "keys": s.Numbers(keys), "after": s.Nullable(after[:]), "most": limit,
	})
}

// CountStuck returns of each spool its id, how many keys have a retrying message, and how long ago
// the first of these messages failed, among so many messages.
func (s *Statements) CountStuck(spools []int64, limit int) []dialect.Query {
	return s.ofSpools(s.countStuck, spools, 2, limit)
}

// CountFewStuck is CountStuck for those that have fewer such messages, as [Statements.CountFew].
func (s *Statements) CountFewStuck(spools []int64, limit int) []dialect.Query {
	return s.ofFew(s.countFewStuck, spools, limit+1)
}
