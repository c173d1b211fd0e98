package dialect

import (
	"database/sql/driver"

	"github.com/lib/pq"
)

// rowTypes and rowColumns are how PostgreSQL takes many a Row, as one array for each of its fields: see messageArrays.
const (
	rowTypes   = `?::smallint[], ?::smallint[], ?::bigint[], ?::bigint[], ?::bigint[], ?::text[], ?::bytea[], ?::bytea[], ?::bytea[], ?::bytea[]`
	rowColumns = `lane, state, key_hash, due, delay, topic, message_id, ordering_key, payload, metadata`
)

// insertRows appends the messages r in the order of r.n, to the spool of its first argument.
//
// PostgreSQL takes a number from a sequence before it gives the transaction an id. The condition on the id is
// checked first, so whoever has a number has an id too: the horizon of a drain depends on it.
func insertRows(from string) string {
	return `
INSERT INTO {messages} (spool, lane, state, key_hash, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
SELECT ?::integer, r.lane, r.state, r.key_hash, CASE WHEN r.due > 0 THEN r.due ELSE {now} + r.delay END, {now},
       r.topic, r.message_id, r.ordering_key, r.payload, r.metadata
FROM ` + from + `
WHERE pg_current_xact_id() IS NOT NULL
ORDER BY r.n`
}

// insertRow appends one message, which most of them are: by itself it is less work for the server than as ten arrays
// of one. It has an id before it has a number, as above.
const insertRow = `
INSERT INTO {messages} (spool, lane, state, key_hash, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
SELECT ?::integer, ?::smallint, ?::smallint, ?::bigint, CASE WHEN ?::bigint > 0 THEN ?::bigint ELSE {now} + ?::bigint END, {now},
       ?::text, ?::bytea, ?::bytea, ?::bytea, ?::bytea
WHERE pg_current_xact_id() IS NOT NULL`

// messageValues returns the arguments for insertRow, but for the spool.
func messageValues(r Row) []any {
	var hash, key any
	if r.KeyHash != nil {
		hash, key = *r.KeyHash, r.Key
	}
	return []any{r.Lane, r.State, hash, r.Due, r.Due, r.Delay, r.Topic, r.MessageID, key, r.Payload, r.Metadata}
}

func (p postgres) ingest(spool int64, claims [][]byte, rows []Row) Ingest {
	args := append(arrayTexts(pq.ByteaArray(claims)), messageArrays(rows)...)
	return Ingest{Whole: Query{Text: p.ingestText, Args: append(args, spool)}}
}

// messageArrays returns the arguments for rowTypes.
func messageArrays(rows []Row) []any {
	n := len(rows)
	lanes, states := make(pq.Int64Array, n), make(pq.Int64Array, n)
	hashes := make(nullInt64Array, n)
	dues, delays := make(pq.Int64Array, n), make(pq.Int64Array, n)
	topics := make(pq.StringArray, n)
	ids, keys, payloads, metadata := make(pq.ByteaArray, n), make(pq.ByteaArray, n), make(pq.ByteaArray, n), make(pq.ByteaArray, n)
	for i, r := range rows {
		lanes[i], states[i], hashes[i], dues[i], delays[i] = int64(r.Lane), int64(r.State), r.KeyHash, r.Due, r.Delay
		topics[i], ids[i], keys[i], payloads[i], metadata[i] = r.Topic, r.MessageID, r.Key, r.Payload, r.Metadata
	}
	return arrayTexts(lanes, states, hashes, dues, delays, topics, ids, keys, payloads, metadata)
}

// arrayTexts writes arrays in PostgreSQL's text form. The driver would do that too, but pgx takes only a string as it
// is: the text of a Valuer it parses and encodes again, which took half of the time of an insert.
func arrayTexts(arrays ...driver.Valuer) []any {
	texts := make([]any, len(arrays))
	for i, array := range arrays {
		text, err := array.Value()
		if err != nil {
			panic("dialect: an array of numbers or bytes has no text: " + err.Error()) // cannot happen for these types
		}
		texts[i] = text
	}
	return texts
}
