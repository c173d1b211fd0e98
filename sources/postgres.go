package sources

import (
	"strconv"

	"github.com/lib/pq"
)

// postgresStatements read the table of DefaultPostgreSQLSchema, whose primary key is
// (transaction_id, "offset").
//
// All statements use ORDER BY and LIMIT, so that the index is the cheapest plan whatever the
// planner expects about the number of rows. The planner might answer an EXISTS by reading the whole
// table.
func postgresStatements() *statements {
	return &statements{
		register: `
INSERT INTO {sources} (name, transaction_id, row_offset) VALUES ($1, 0, -1) ON CONFLICT DO NOTHING`,

		lock: `
SELECT transaction_id, row_offset, pg_current_snapshot()::text FROM {sources} WHERE name = $1 FOR UPDATE SKIP LOCKED`,

		save: `
UPDATE {sources} SET transaction_id = $1, row_offset = $2 WHERE name = $3`,

		groups: `
SELECT consumer_group, consumer_group = $1 FROM {offsets} ORDER BY consumer_group LIMIT 100`,

		addGroup: `
INSERT INTO {offsets} (consumer_group, offset_acked, last_processed_transaction_id) VALUES ($1, 0, '0') ON CONFLICT DO NOTHING`,

		// An update, which changes nothing, instead of only a lock. The daemon reads in REPEATABLE
		// READ. If it took its snapshot before this transaction, it would continue after a lock and
		// find the removed rows in its snapshot. With an update it gets a serialization failure and
		// begins again.
		fence: `
UPDATE {offsets} SET offset_acked = offset_acked
WHERE consumer_group = (SELECT consumer_group FROM {offsets} WHERE consumer_group = $1 FOR UPDATE SKIP LOCKED)
RETURNING COALESCE(offset_acked, 0), last_processed_transaction_id::text, pg_snapshot_xmax(pg_current_snapshot())::text`,

		peek: `
SELECT (
		SELECT 1 FROM unnest($1::text[], $2::bigint[]) AS l(transaction_id, after)
		CROSS JOIN LATERAL (
			SELECT 1 FROM {source} m
			WHERE m.transaction_id = l.transaction_id::xid8 AND m."offset" > l.after
			ORDER BY m.transaction_id, m."offset" LIMIT 1) f
		LIMIT 1) IS NOT NULL
	OR (
		SELECT 1 FROM {source} m
		WHERE (m.transaction_id, m."offset") > ($3::text::xid8, $4::bigint)
		ORDER BY m.transaction_id, m."offset" LIMIT 1) IS NOT NULL,
	transaction_id, row_offset
FROM {sources} WHERE name = $5`,

		page: `
SELECT p.transaction_id::text, p."offset", p.uuid, p.payload, p.metadata
FROM (
	(SELECT f.* FROM unnest($1::text[], $2::bigint[]) AS l(transaction_id, after)
	CROSS JOIN LATERAL (
		SELECT m.transaction_id, m."offset", m.uuid, m.payload, m.metadata
		FROM {source} m
		WHERE m.transaction_id = l.transaction_id::xid8 AND m."offset" > l.after
		ORDER BY m.transaction_id, m."offset" LIMIT $3) f
	ORDER BY f.transaction_id, f."offset" LIMIT $4)
	UNION ALL
	(SELECT m.transaction_id, m."offset", m.uuid, m.payload, m.metadata
	FROM {source} m
	WHERE (m.transaction_id, m."offset") > ($5::text::xid8, $6::bigint)
	ORDER BY m.transaction_id, m."offset" LIMIT $7)
) p
ORDER BY p.transaction_id, p."offset" LIMIT $8`,

		remove: `
DELETE FROM {source} m
USING unnest($1::text[], $2::bigint[]) AS r(transaction_id, row_offset)
WHERE m.transaction_id = r.transaction_id::xid8 AND m."offset" = r.row_offset`,

		rows: byTransaction{},
	}
}

// byTransaction identifies a row by the transaction that wrote it, and its offset.
type byTransaction struct{}

func (byTransaction) peek(name string, r position) []any {
	transactions, offsets := rowArrays(r.Late)
	return []any{transactions, offsets, strconv.FormatInt(r.After.Transaction, 10), r.After.Offset, name}
}

func (byTransaction) page(r position, limit int) []any {
	transactions, offsets := rowArrays(r.Late)
	return []any{transactions, offsets, limit, limit, strconv.FormatInt(r.After.Transaction, 10), r.After.Offset, limit, limit}
}

func (byTransaction) remove(rows []rowID) []any {
	transactions, offsets := rowArrays(rows)
	return []any{transactions, offsets}
}

// rowArrays writes transaction ids as text, the only type that can be cast to xid8 on all versions.
func rowArrays(rows []rowID) (transactions pq.StringArray, offsets pq.Int64Array) {
	transactions, offsets = make(pq.StringArray, len(rows)), make(pq.Int64Array, len(rows))
	for i, row := range rows {
		transactions[i], offsets[i] = strconv.FormatInt(row.Transaction, 10), row.Offset
	}
	return transactions, offsets
}
