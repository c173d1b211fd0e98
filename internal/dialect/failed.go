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
	if s.settleFailed.text != "" {
		return FailedQueries{Together: s.settleFailed.with(values)}
	}
	queries := FailedQueries{Note: s.noteFailed.with(values)}
	if len(dead) < len(failed) {
		queries.Retry = s.retryFailed.with(values)
	}
	if len(dead) > 0 {
		queries.Bury, queries.Remove = s.buryFailed.with(values), s.Remove(spool, dead)
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

// postgresSettleFailed moves messages that were ready or are dead, and changes those that have
// waited before, so that who waits for the lock of such a row finds it. A trigger of the user may
// keep a message out of the other table without an error, and then fewer messages are settled than
// were given.
var postgresSettleFailed = `
WITH s AS MATERIALIZED (
	SELECT * FROM json_to_recordset(:failed::json) AS s(state smallint, lane smallint, token bigint, id bigint, created_at bigint,
		attempts integer, least smallint, most smallint, delay bigint, added integer, back smallint, cause smallint, attempt integer, error text)),
r AS MATERIALIZED (
	SELECT m.*, s.cause IS NOT NULL OR s.state = 0 AS moves` + foundAsRead(`s`, place, ``) + `),
d AS (
	DELETE FROM {messages} m
	WHERE m.ctid = ANY(ARRAY(SELECT place FROM r WHERE moves))
	  AND ((m.tableoid, m.id, m.state, m.starts) IN (SELECT part, id, state, starts FROM r WHERE moves)) IS TRUE
	  AND ` + seemsDear + `
	RETURNING m.*),
u AS (
	UPDATE {messages} m
	SET state = 2, available_at = {now} + s.delay, attempts = m.attempts + s.added, starts = m.starts - s.back
	FROM s
	WHERE s.id = m.id AND m.ctid = ANY(ARRAY(SELECT place FROM r WHERE NOT moves))
	  AND ((m.tableoid, m.id, m.state, m.starts) IN (SELECT part, id, state, starts FROM r WHERE NOT moves)) IS TRUE
	  AND ` + seemsDear + `
	RETURNING m.id),
w AS (
	INSERT INTO {waiting} (state, available_at, attempts, starts,
	                       id, spool, lane, key_hash, created_at, topic, message_id, ordering_key, payload, metadata)
	SELECT 2, {now} + s.delay, m.attempts + s.added, m.starts - s.back,
	       m.id, m.spool, m.lane, m.key_hash, m.created_at, m.topic, m.message_id, m.ordering_key, m.payload, m.metadata
	FROM d m JOIN s ON s.id = m.id
	WHERE s.cause IS NULL
	RETURNING 1),
x AS (
	INSERT INTO {dead_letters} (origin, subject, error, cause, spool, consumer, topic, message_id, ordering_key, key_hash,
	                            payload, metadata, created_at, died_at, attempts)
	SELECT 0, {subject of m}, s.error, s.cause, m.spool, '', m.topic, m.message_id, m.ordering_key, m.key_hash,
	       m.payload, m.metadata, m.created_at, {now}, m.attempts + 1
	FROM d m JOIN s ON s.id = m.id
	WHERE s.cause IS NOT NULL
	ORDER BY m.id
	RETURNING 1),
f AS (
	INSERT INTO {failures} (subject, attempt, failed_at, error, process)
	SELECT {subject of m}, m.attempt, {now}, m.error, :process::text
	FROM s m WHERE m.attempt IS NOT NULL
	ORDER BY m.id)
SELECT (SELECT COUNT(*) FROM w) + (SELECT COUNT(*) FROM x) + (SELECT COUNT(*) FROM u)`

// mysqlUnchanged is true for a message that is as it was read, mysqlAsRead if its lane is held,
// too. The lane is in a subquery: otherwise its row would be locked too, or skipped while its lease
// is renewed. An UPDATE locks it there as well, and the server goes on with an UPDATE that its
// client has given up, so the leases could not be renewed. So what changes rows that were locked as
// they were read does not look at the lane again, but for the removal of dead ones.
const (
	mysqlUnchanged = `m.lane = s.lane AND m.created_at = s.created_at AND m.state = s.state AND m.attempts = s.attempts
  AND m.starts BETWEEN s.least AND s.most`
	mysqlAsRead = mysqlUnchanged + `
  AND EXISTS (SELECT 1 FROM {lanes} l WHERE l.spool = m.spool AND l.lane = s.lane AND l.token = s.token)`
)

// mysqlFailed takes the list of failedRow.
const mysqlFailed = `JSON_TABLE(:failed, '$[*]' COLUMNS (state INT PATH '$.state', lane INT PATH '$.lane', token BIGINT PATH '$.token',
	id BIGINT PATH '$.id', created_at BIGINT PATH '$.created_at', attempts INT PATH '$.attempts', least INT PATH '$.least',
	most INT PATH '$.most', delay BIGINT PATH '$.delay', added INT PATH '$.added', back INT PATH '$.back', cause INT PATH '$.cause',
	attempt INT PATH '$.attempt', error VARCHAR(8192) PATH '$.error'))`

const (
	mysqlRetryFailed = `
UPDATE ` + mysqlFailed + ` s
STRAIGHT_JOIN {messages} m FORCE INDEX (PRIMARY) ON m.id = s.id
SET m.state = 2, m.available_at = {now} + s.delay, m.attempts = m.attempts + s.added, m.starts = m.starts - s.back
WHERE m.spool = :spool AND s.cause IS NULL AND ` + mysqlUnchanged

	mysqlBuryFailed = `
INSERT INTO {dead_letters} (origin, subject, error, cause, spool, consumer, topic, message_id, ordering_key, key_hash,
                            payload, metadata, created_at, died_at, attempts)
SELECT 0, {subject of m}, CONVERT(UNHEX(s.error) USING utf8mb4), s.cause, m.spool, '', m.topic, m.message_id, m.ordering_key, m.key_hash,
       m.payload, m.metadata, m.created_at, {now}, m.attempts + 1
FROM ` + mysqlFailed + ` s
STRAIGHT_JOIN {messages} m FORCE INDEX (PRIMARY) ON m.id = s.id
WHERE m.spool = :spool AND s.cause IS NOT NULL AND ` + mysqlUnchanged

	mysqlNoteFailed = `
INSERT INTO {failures} (subject, attempt, failed_at, error, process)
SELECT {subject of m}, m.attempt, {now}, CONVERT(UNHEX(m.error) USING utf8mb4), :process
FROM ` + mysqlFailed + ` m WHERE m.attempt IS NOT NULL`
)

// sqliteFailed finds messages that are as they were read, and whose lane is held.
const sqliteFailed = `
FROM json_each(:failed) s
CROSS JOIN {messages} m ON m.id = s.value ->> 'id'
CROSS JOIN {lanes} l ON l.spool = m.spool AND l.lane = s.value ->> 'lane' AND l.token = s.value ->> 'token'
WHERE m.spool = :spool AND m.lane = s.value ->> 'lane' AND m.created_at = s.value ->> 'created_at' AND m.state = s.value ->> 'state'
  AND m.attempts = s.value ->> 'attempts' AND m.starts BETWEEN s.value ->> 'least' AND s.value ->> 'most'
  AND s.value ->> 'cause' IS`

const (
	sqliteRetryFailed = `
UPDATE {messages} SET state = 2, available_at = {now} + f.delay, attempts = attempts + f.added, starts = starts - f.back
FROM (
	SELECT m.id AS found, s.value ->> 'delay' AS delay, s.value ->> 'added' AS added, s.value ->> 'back' AS back` + sqliteFailed + ` NULL) f
WHERE id = f.found`

	sqliteBuryFailed = `
INSERT INTO {dead_letters} (origin, subject, error, cause, spool, consumer, topic, message_id, ordering_key, key_hash,
                            payload, metadata, created_at, died_at, attempts)
SELECT 0, {subject of m}, s.value ->> 'error', s.value ->> 'cause', m.spool, '', m.topic, m.message_id, m.ordering_key, m.key_hash,
       m.payload, m.metadata, m.created_at, {now}, m.attempts + 1` + sqliteFailed + ` NOT NULL`

	sqliteNoteFailed = `
INSERT INTO {failures} (subject, attempt, failed_at, error, process)
SELECT {subject of m}, m.attempt, {now}, m.error, :process
FROM (
	SELECT value ->> 'id' AS id, value ->> 'created_at' AS created_at, value ->> 'attempt' AS attempt, value ->> 'error' AS error
	FROM json_each(:failed)) m
WHERE m.attempt IS NOT NULL`
)
