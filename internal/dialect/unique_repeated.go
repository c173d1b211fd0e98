package dialect

import "slices"

// ofUniqueKey makes m the message of a key u, where the id alone is the primary key of messages.
const ofUniqueKey = `m.id = u.id AND m.created_at = u.created_at AND m.spool = u.spool`

// uniqueKeyGone is true for a key u without a message.
const uniqueKeyGone = `NOT EXISTS (SELECT 1 FROM {messages} m {by id} WHERE ` + ofUniqueKey + `)`

const uniqueStored = `SELECT ?, ?, ?, ?, CASE WHEN ? > 0 THEN ? ELSE {now} + ? END, {now}, ?, ?, ?, ?, ?`

// mysqlUnique keeps the results of find in variables of the session, because a publisher only
// executes statements and reads no results. The statements that change rows do not search the
// messages: under REPEATABLE READ, such a search locks the gap where producers insert, if it finds
// nothing.
//
// Under REPEATABLE READ, find sees the snapshot of the transaction. The lock has returned the
// newest id of the key as LAST_INSERT_ID. If the snapshot does not contain that id, the message is
// newer, and counts as one that waits. FOR UPDATE reads the newest time of creation.
//
// INSERT ... SELECT locks the counter of ids until it ends, and so may deadlock with another one.
// So it only stores where the new message may be left out: a message that replaces another comes
// after a DELETE, which may lock a gap.
func mysqlUnique() uniqueTexts {
	const (
		store       = mysqlInsert + mysqlRow + holdWriter + `)`
		storeIfNone = mysqlInto + uniqueStored + `, ` + holdWriter + ` FROM DUAL WHERE @postbox_waits = 0`
	)
	const note = `
UPDATE {unique_keys} SET id = LAST_INSERT_ID(), created_at = (SELECT m.created_at FROM {messages} m WHERE m.id = LAST_INSERT_ID())
WHERE digest = ?`
	return uniqueTexts{
		lock: `
INSERT INTO {unique_keys} (digest, spool, id, created_at) VALUES (?, ?, LAST_INSERT_ID(0), 0)
ON DUPLICATE KEY UPDATE id = LAST_INSERT_ID(id)`,
		find: `
SELECT f.waits, CASE WHEN f.waits > 0 THEN LAST_INSERT_ID() END, (SELECT u.created_at FROM {unique_keys} u WHERE u.digest = ? FOR UPDATE)
FROM (SELECT (SELECT COUNT(*) FROM {unique_keys} u STRAIGHT_JOIN {messages} m {by id} ON ` + ofUniqueKey + ` WHERE u.digest = ?)
           + (SELECT COUNT(*) = 0 FROM {unique_keys} u WHERE u.digest = ? AND u.id = LAST_INSERT_ID()) AS waits) f
INTO @postbox_waits, @postbox_id, @postbox_created`,
		// By another index the server would read, and lock, all messages of the spool; it may
		// prefer one if they are few. Without an id it reads and locks nothing.
		remove: `
DELETE m FROM {messages} m {by id} WHERE m.id = @postbox_id AND m.created_at = @postbox_created AND m.spool = ? AND m.state < 2`,
		store: [2]string{store}, storeIfNone: [2]string{storeIfNone},
		note: note, noteIfNone: note + ` AND @postbox_waits = 0`,
	}
}

// sqliteUnique needs no lock: the first statement that writes locks the database.
func sqliteUnique() uniqueTexts {
	const insert = `
INSERT INTO {messages} (spool, lane, state, key_hash, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
` + uniqueStored
	const note = `
INSERT INTO {unique_keys} (digest, spool, id, created_at)
SELECT ?, m.spool, m.id, m.created_at FROM {messages} m WHERE changes() > 0 AND m.id = last_insert_rowid()
ON CONFLICT (digest) DO UPDATE SET id = excluded.id, created_at = excluded.created_at`
	return uniqueTexts{
		remove: `
DELETE FROM {messages}
WHERE id = (SELECT u.id FROM {unique_keys} u WHERE u.digest = ?)
  AND created_at = (SELECT u.created_at FROM {unique_keys} u WHERE u.digest = ?)
  AND spool = ? AND state < 2`,
		store: [2]string{insert}, storeIfNone: [2]string{insert + `
WHERE NOT EXISTS (SELECT 1 FROM {unique_keys} u JOIN {messages} m ON ` + ofUniqueKey + ` WHERE u.digest = ?)`},
		note: note, noteIfNone: note,
	}
}

func (r repeated) lockUnique(spool int64, digest []byte) Query {
	return r.unique.lockUnique(spool, digest)
}

func (m mysql) appendUnique(p UniqueParams) Unique {
	u := m.unique
	unique := Unique{Before: []Query{u.lockUnique(p.Spool, p.Digest), {Text: u.find, Args: []any{p.Digest, p.Digest, p.Digest}}}}
	store, note := u.storeIfNone[0], u.noteIfNone
	if p.Replace {
		// The removal comes after the new message: under REPEATABLE READ it locks the gap of a
		// message that is gone since the snapshot, and that gap ends at the new message instead of
		// at the end of the table, where others insert.
		unique.After = append(unique.After, Query{Text: u.remove, Args: []any{p.Spool}})
		store, note = u.store[0], u.note
	}
	unique.Store = Query{Text: store, Args: rowValues(p.Spool, p.Row)}
	unique.After = append(unique.After, Query{Text: note, Args: []any{p.Digest}})
	return unique
}

func (s sqlite) appendUnique(p UniqueParams) Unique {
	u, values := s.unique, rowValues(p.Spool, p.Row)
	unique := Unique{
		Store: Query{Text: u.storeIfNone[0], Args: append(slices.Clip(values), p.Digest)},
		After: []Query{{Text: u.note, Args: []any{p.Digest}}},
	}
	if p.Replace {
		unique.Before = []Query{{Text: u.remove, Args: []any{p.Digest, p.Digest, p.Spool}}}
		unique.Store = Query{Text: u.store[0], Args: values}
	}
	return unique
}
