package dialect

import (
	"slices"
	"strings"
)

// atUniqueKey looks up the message of a key u in states, and so in both tables. {where} are the lanes in which it may be.
const atUniqueKey = `{where} AS l(lane)
CROSS JOIN (VALUES {states}) AS s(state)
CROSS JOIN LATERAL (
	SELECT {columns}
	FROM {messages} m
	WHERE m.spool = u.spool AND m.state = s.state AND m.lane = l.lane AND m.id BETWEEN u.id AND u.id AND m.created_at = u.created_at
	ORDER BY m.id` + alongIndex + `
	LIMIT 1) AS m`

// ownLane is the lane in which the message was stored.
const ownLane = `(SELECT u.lane)`

// ownLanes is ownLane, and then those to which the message may have been moved: all later ones if it was stored in an old lane, and all of the layout if
// it is behind them, since the database had lost the layout by which it was stored: see [Layout]. They are looked up after ownLane, so mostly not at
// all. Their numbers have two bounds, so that the planner expects few of them: see leastNumber.
const ownLanes = `(
	SELECT u.lane
	UNION ALL
	SELECT g.lane::smallint
	FROM {spools} o CROSS JOIN generate_series(CASE WHEN u.lane < o.first_lane THEN u.lane + 1 ELSE o.first_lane END, o.first_lane + o.lanes - 1) AS g(lane)
	WHERE o.id = u.spool AND u.lane NOT BETWEEN o.first_lane AND o.first_lane + o.lanes - 1 AND g.lane BETWEEN 0 AND 32767)`

// withoutMessage is true for a key u without a message in these lanes that meets the condition on m, which has these columns. With the LIMIT,
// the planner cannot make a join of it, which might read the whole table.
func withoutMessage(columns, lanes, condition string) string {
	lookup := strings.NewReplacer("{columns}", columns, "{states}", "(0::smallint), (1::smallint), (2::smallint)", "{where}", lanes).Replace(atUniqueKey)
	return `(SELECT 1 FROM ` + lookup + condition + ` LIMIT 1) IS NULL`
}

// noneWaits is true for a key u whose message does not wait. A transaction with a snapshot still sees a message that was removed since, and
// skipping for that one would lose a notification. So there a message counts only if no later transaction has removed, moved or locked it: xmax
// is that of the row itself, not of the snapshot. A lock of the row would show the same, but the forwarder would then wait for this transaction.
var noneWaits = withoutMessage("m.xmax AS touched", ownLanes, `
	WHERE m.touched = 0 OR current_setting('transaction_isolation') IN ('read committed', 'read uncommitted')`)

// postgresUniqueKeyGone looks in all lanes, if the message is not where it was stored.
var postgresUniqueKeyGone = withoutMessage("m.id", ownLane, "") + `
  AND (SELECT 1 FROM {messages} m WHERE m.spool = u.spool AND m.id = u.id AND m.created_at = u.created_at {any lane} LIMIT 1) IS NULL`

// postgresUnique gives the message its id before it is inserted, and notes it under the key in the same statement. The
// lock has given the transaction an id, which the watermark of a drain depends on: see insertRows.
//
// If remove waits for another statement that changes the row, it finds no row. So a statement that replaces a message
// deletes it once more: it begins later, and sees the message where it is then.
func postgresUnique() uniqueTexts {
	remove := inPlace(`
FROM {unique_keys} u
CROSS JOIN LATERAL `+strings.NewReplacer("{columns}", place, "{states}", "(0::smallint), (1::smallint)", "{where}", ownLanes).Replace(atUniqueKey)+`
WHERE u.digest = ?`, `DELETE FROM {messages} m`, `id, state`)
	store := func(before, table, condition string) string {
		return `
WITH ` + before + `k AS (
	UPDATE {unique_keys} u SET lane = ?::smallint, id = nextval('{messages}_id_seq'), created_at = {arrival}
	WHERE u.digest = ?` + condition + `
	RETURNING u.id, u.spool, u.lane, u.created_at)
INSERT INTO ` + table + ` (id, spool, lane, state, key_hash, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
SELECT k.id, k.spool, k.lane, ?::smallint, ?::bigint, CASE WHEN ?::bigint > 0 THEN ?::bigint ELSE {now} + ?::bigint END, k.created_at,
       ?::text, ?::bytea, ?::bytea, ?::bytea, ?::bytea
FROM k`
	}
	again, ifNone := `d AS (`+remove+`),
`, `
	  AND `+noneWaits
	return uniqueTexts{
		// WHERE FALSE: the row is locked and not written.
		lock: `
INSERT INTO {unique_keys} AS u (digest, spool, lane, id, created_at) VALUES (?, ?, 0, 0, 0)
ON CONFLICT (digest) DO UPDATE SET id = u.id WHERE FALSE`,
		remove:      remove,
		storeFree:   [2]string{store("", "{messages}", ""), store("", "{waiting}", "")},
		store:       [2]string{store(again, "{messages}", ""), store(again, "{waiting}", "")},
		storeIfNone: [2]string{store("", "{messages}", ifNone), store("", "{waiting}", ifNone)},
	}
}

func (p postgres) lockUnique(spool int64, digest []byte) Query {
	return p.unique.lockUnique(spool, digest)
}

func (p postgres) appendUnique(params UniqueParams) Unique {
	row, of := params.Row, min(params.Row.State, StateScheduled)
	var hash any
	if row.KeyHash != nil {
		hash = *row.KeyHash
	}
	values := []any{row.State, hash, row.Due, row.Due, row.Delay, row.Topic, row.MessageID, row.Key, row.Payload, row.Metadata}
	noted := []any{row.Lane, params.Digest}
	unique := Unique{
		Before:    []Query{p.lockUnique(params.Spool, params.Digest)},
		StoreFree: Query{Text: p.unique.storeFree[of], Args: slices.Concat(noted, values)},
	}
	if !params.Replace {
		unique.Store = Query{Text: p.unique.storeIfNone[of], Args: slices.Concat(noted, values)}
		return unique
	}
	removed := []any{params.Digest}
	unique.Before = append(unique.Before, Query{Text: p.unique.remove, Args: removed})
	unique.Store = Query{Text: p.unique.store[of], Args: slices.Concat(removed, noted, values)}
	return unique
}
