package dialect

import (
	"slices"
	"strings"
)

// atUniqueKey looks up the message of a key u in states, and so in both tables.
const atUniqueKey = `(VALUES {states}) AS s(state)
CROSS JOIN LATERAL (
	SELECT {columns}
	FROM {messages} m
	WHERE m.spool = u.spool AND m.state = s.state AND m.lane = u.lane AND m.id BETWEEN u.id AND u.id AND m.created_at = u.created_at
	ORDER BY m.id
	LIMIT 1) AS m`

// withoutMessage is true for a key u without a message that meets the condition on m, which has
// these columns. With the LIMIT, the planner cannot make a join of it, which might read the whole
// table.
func withoutMessage(columns, condition string) string {
	lookup := strings.NewReplacer("{columns}", columns, "{states}", "(0::smallint), (1::smallint), (2::smallint)").Replace(atUniqueKey)
	return `(SELECT 1 FROM ` + lookup + condition + ` LIMIT 1) IS NULL`
}

// noneWaits is true for a key u whose message does not wait. A transaction with a snapshot still
// sees a message that was removed since, and skipping for that one would lose a notification. So
// there a message counts only if no later transaction has removed, moved or locked it: xmax is that
// of the row itself, not of the snapshot. A lock of the row would show the same, but the forwarder
// would then wait for this transaction.
var noneWaits = withoutMessage("m.xmax AS touched", `
	WHERE m.touched = 0 OR current_setting('transaction_isolation') IN ('read committed', 'read uncommitted')`)

var postgresUniqueKeyGone = withoutMessage("m.id", "")

// postgresUnique gives the message its id before it is inserted, and notes it under the key in the
// same statement. The lock has given the transaction an id, which the watermark of a drain depends
// on: see insertRows.
//
// If remove waits for another statement that changes the row, it finds no row. So a statement that
// replaces a message deletes it once more: it begins later, and sees the message where it is then.
func postgresUnique() uniqueTexts {
	remove := inPlace(`
FROM {unique_keys} u
CROSS JOIN LATERAL `+strings.NewReplacer("{columns}", place, "{states}", "(0::smallint), (1::smallint)").Replace(atUniqueKey)+`
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
