package dialect

import (
	"database/sql/driver"

	"github.com/lib/pq"
)

// packedRows is how PostgreSQL takes many a Row, and the claim of each where there are claims: the bytes of all of them in one
// piece, and in arrays of numbers where each row's begin and how long its parts are. As an array of bytes each of them
// would be written and read in an array's text form, which took a third of an insert's time.
const packedRows = `
SELECT n, lane, state, key_hash, due, delay, topic,
       substring(bytes, at, claim_size) AS claim_key,
       substring(bytes, at + claim_size, id_size) AS message_id,
       CASE WHEN key_hash IS NOT NULL THEN substring(bytes, at + claim_size + id_size, key_size) END AS ordering_key,
       substring(bytes, at + claim_size + id_size + key_size, payload_size) AS payload,
       substring(bytes, at + claim_size + id_size + key_size + payload_size, metadata_size) AS metadata
FROM (SELECT ?::bytea AS bytes) AS b,
     unnest(?::integer[], ?::integer[], ?::integer[], ?::integer[], ?::integer[], ?::integer[],
            ?::smallint[], ?::smallint[], ?::bigint[], ?::bigint[], ?::bigint[], ?::text[])
     WITH ORDINALITY AS p(at, claim_size, id_size, key_size, payload_size, metadata_size,
                          lane, state, key_hash, due, delay, topic, n)`

// insertRows appends the messages r, or those of which a further condition holds, to a table: in the order of r.n, and to the
// spool of its first argument.
//
// PostgreSQL takes a number from a sequence before it gives the transaction an id. The condition on the id is
// checked first, so a transaction that has a number has an id too: the watermark of a drain depends on it.
func insertRows(table, from, condition string) string {
	return `
INSERT INTO ` + table + ` (spool, lane, state, key_hash, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
SELECT ?::integer, r.lane, r.state, r.key_hash, CASE WHEN r.due > 0 THEN r.due ELSE {now} + r.delay END, {now},
       r.topic, r.message_id, r.ordering_key, r.payload, r.metadata
FROM ` + from + `
WHERE pg_current_xact_id() IS NOT NULL` + condition + `
ORDER BY r.n`
}

// insertReady appends one message that may be handled at once, which most of them are: by itself it is less work for the
// server than packed. It has an id before it has a number, as above.
//
// Its time is that at which the statement arrived. Were it the clock, which may change while a statement runs, the
// planner would keep the query apart from the insert, and that would cost an eighth of the statement. From when it may be
// handled is not looked at while it is ready, and to reckon with the clock once more would cost a thirtieth.
const insertReady = `
INSERT INTO {messages} (spool, lane, state, key_hash, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
SELECT ?::integer, ?::smallint, 0, ?::bigint, 0, {arrival}, ?::text, ?::bytea, ?::bytea, ?::bytea, ?::bytea
WHERE pg_current_xact_id() IS NOT NULL`

// readyValues returns the arguments for insertReady.
func readyValues(spool int64, r Row) []any {
	var hash, key any
	if r.KeyHash != nil {
		hash, key = *r.KeyHash, r.Key
	}
	return []any{spool, r.Lane, hash, r.Topic, r.MessageID, key, r.Payload, r.Metadata}
}

func (p postgres) ingest(spool int64, claims [][]byte, rows []Row) Ingest {
	args := append(pack(claims, rows), spool)
	if allReady(rows) {
		return Ingest{Whole: Query{Text: p.ingestText, Args: args}}
	}
	return Ingest{Whole: Query{Text: p.ingestMixedText, Args: append(args, spool)}}
}

// pack returns the arguments for packedRows. There are no claims, or one for each row.
func pack(claims [][]byte, rows []Row) []any {
	n, size := len(rows), 0
	for i, r := range rows {
		size += len(r.MessageID) + len(r.Key) + len(r.Payload) + len(r.Metadata)
		if claims != nil {
			size += len(claims[i])
		}
	}
	bytes := make([]byte, 0, size)
	at, claimSizes, idSizes, keySizes := make(pq.Int64Array, n), make(pq.Int64Array, n), make(pq.Int64Array, n), make(pq.Int64Array, n)
	payloadSizes, metadataSizes := make(pq.Int64Array, n), make(pq.Int64Array, n)
	lanes, states, hashes := make(pq.Int64Array, n), make(pq.Int64Array, n), make(nullInt64Array, n)
	dues, delays, topics := make(pq.Int64Array, n), make(pq.Int64Array, n), make(pq.StringArray, n)
	for i, r := range rows {
		at[i] = int64(len(bytes)) + 1
		put := func(part []byte) int64 {
			bytes = append(bytes, part...)
			return int64(len(part))
		}
		if claims != nil {
			claimSizes[i] = put(claims[i])
		}
		idSizes[i], keySizes[i], payloadSizes[i], metadataSizes[i] = put(r.MessageID), put(r.Key), put(r.Payload), put(r.Metadata)
		lanes[i], states[i], hashes[i], dues[i], delays[i], topics[i] = int64(r.Lane), int64(r.State), r.KeyHash, r.Due, r.Delay, r.Topic
	}
	return append([]any{bytes}, arrayTexts(at, claimSizes, idSizes, keySizes, payloadSizes, metadataSizes,
		lanes, states, hashes, dues, delays, topics)...)
}

// arrayTexts writes arrays in PostgreSQL's text form. The driver would do that too, but pgx takes only a string as it
// is: the text of a Valuer it parses and encodes again, which took half of the time of an insert.
func arrayTexts(arrays ...driver.Valuer) []any {
	texts := make([]any, len(arrays))
	for i, array := range arrays {
		text, err := array.Value()
		if err != nil {
			panic("dialect: an array of numbers or words has no text: " + err.Error()) // cannot happen for these types
		}
		texts[i] = text
	}
	return texts
}
