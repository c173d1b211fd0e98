package dialect

// packedRows is how PostgreSQL takes many a Row, and the claim of each where there are claims: the
// bytes of all of them in one piece, and in arrays of numbers where each row's begin and how long
// its parts are. The payload is last: its length is NULL where it is. As an array of bytes each of
// them would be written and read in an array's text form, which took a third of an insert's time.
func packedRows(moreColumns, moreArrays string) string {
	return `
SELECT n, lane, key_hash, topic` + moreColumns + `,
       substring(bytes, at, claim_size) AS claim_key,
       substring(bytes, at + claim_size, id_size) AS message_id,
       CASE WHEN key_hash IS NOT NULL THEN substring(bytes, at + claim_size + id_size, key_size) END AS ordering_key,
       substring(bytes, at + claim_size + id_size + key_size, metadata_size) AS metadata,
       substring(bytes, at + claim_size + id_size + key_size + metadata_size, payload_size) AS payload
FROM (SELECT :bytes::bytea AS bytes) AS b,
     unnest(:begins::integer[], :claim_sizes::integer[], :id_sizes::integer[], :key_sizes::integer[], :metadata_sizes::integer[],
            :payload_sizes::integer[], :lanes::smallint[], :hashes::bigint[], :topics::text[]` + moreArrays + `)
     WITH ORDINALITY AS p(at, claim_size, id_size, key_size, metadata_size, payload_size,
                          lane, key_hash, topic` + moreColumns + `, n)`
}

// Rows that are all ready, as they usually are, do without the arrays that rows need of which some
// wait.
var (
	packedReady = packedRows(``, ``)
	packedMixed = packedRows(`, state, due, delay`, `, :states::smallint[], :dues::bigint[], :delays::bigint[]`)
)

// The state of a row and the time when it is due, for insertRows: of ready rows, whose time is not
// looked at, and of those that wait.
const (
	isReady = `0, 0`
	waits   = `r.state, CASE WHEN r.due > 0 THEN r.due ELSE {now} + r.delay END`
)

// insertRows appends the messages r, or those of which a further condition holds, to a table: in
// the order of r.n, and to the spool of its first argument. Their time is that at which the
// statement arrived, as with insertReady; the subquery reads it once for all of them.
//
// PostgreSQL takes a number from a sequence before it gives the transaction an id. The condition on
// the id is checked first, so a transaction that has a number has an id too: the watermark of a
// drain depends on it.
func insertRows(table, standing, from, condition string) string {
	return `
INSERT INTO ` + table + ` (spool, lane, key_hash, state, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
SELECT :spool::integer, r.lane, r.key_hash, ` + standing + `, (SELECT {arrival}),
       r.topic, r.message_id, r.ordering_key, r.payload, r.metadata
FROM ` + from + `
WHERE pg_current_xact_id() IS NOT NULL` + condition + `
ORDER BY r.n`
}

// insertReady appends one message that may be handled at once, which most of them are: by itself it
// is less work for the server than packed. It has an id before it has a number, as above.
//
// Its time is that at which the statement arrived. Were it the clock, which may change while a
// statement runs, the planner would keep the query apart from the insert, and that would cost an
// eighth of the statement. From when it may be handled is not looked at while it is ready, and to
// reckon with the clock once more would cost a thirtieth.
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
	if allReady(rows) {
		return Ingest{Whole: p.ingestReady.inOrder(append(pack(claims, rows), spool))}
	}
	return Ingest{Whole: p.ingestMixed.inOrder(append(packMixed(claims, rows), spool))}
}

// pack returns the arguments for packedReady. There are no claims, or one for each row.
func pack(claims [][]byte, rows []Row) []any {
	size := 0
	for i, r := range rows {
		size += len(r.MessageID) + len(r.Key) + len(r.Payload) + len(r.Metadata)
		if claims != nil {
			size += len(claims[i])
		}
	}
	bytes := make([]byte, 0, size)
	begins, lanes, hashes, topics := newArrayText(len(rows)), newArrayText(len(rows)), newArrayText(len(rows)), newArrayText(len(rows))
	var sizes [5]arrayText
	for part := range sizes {
		sizes[part] = newArrayText(len(rows))
	}
	for i, r := range rows {
		parts := [len(sizes)][]byte{nil, r.MessageID, r.Key, r.Metadata, r.Payload}
		if claims != nil {
			parts[0] = claims[i]
		}
		begins.addNumber(int64(len(bytes)) + 1)
		for part, content := range parts {
			bytes = append(bytes, content...)
			if part == len(parts)-1 && content == nil {
				sizes[part].addNullable(nil)
				continue
			}
			sizes[part].addNumber(int64(len(content)))
		}
		lanes.addNumber(int64(r.Lane))
		hashes.addNullable(r.KeyHash)
		topics.addWord(r.Topic)
	}
	const arguments = 12 // with room for those after them
	args := append(make([]any, 0, arguments), bytes, begins.String())
	for _, size := range sizes {
		args = append(args, size.String())
	}
	return append(args, lanes.String(), hashes.String(), topics.String())
}

// packMixed returns the arguments for packedMixed.
func packMixed(claims [][]byte, rows []Row) []any {
	var states, dues, delays arrayText
	for _, r := range rows {
		states.addNumber(int64(r.State))
		dues.addNumber(r.Due)
		delays.addNumber(r.Delay)
	}
	return append(pack(claims, rows), states.String(), dues.String(), delays.String())
}
