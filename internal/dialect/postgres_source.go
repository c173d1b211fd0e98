package dialect

import (
	"strconv"

	"github.com/lib/pq"
)

// pgSource reads the table of DefaultPostgreSQLSchema, whose primary key is (transaction_id,
// "offset").
type pgSource struct {
	peekText, pageText, removeText string
}

// All statements use ORDER BY and LIMIT, so that the index is the cheapest plan whatever the
// planner expects about the number of rows. The planner might answer an EXISTS by reading the whole
// table.
func postgresSource(names Names, tables replacer) *SourceStatements {
	s := &SourceStatements{
		Register: `
INSERT INTO {sources} (name, transaction_id, row_offset) VALUES (?, 0, -1) ON CONFLICT DO NOTHING`,

		Lock: `
SELECT transaction_id, row_offset, pg_current_snapshot()::text FROM {sources} WHERE name = ? FOR UPDATE SKIP LOCKED`,

		save: `
UPDATE {sources} SET transaction_id = ?, row_offset = ? WHERE name = ?`,

		Groups: `
SELECT consumer_group, consumer_group = ? FROM {offsets} ORDER BY consumer_group LIMIT 100`,

		AddGroup: `
INSERT INTO {offsets} (consumer_group, offset_acked, last_processed_transaction_id) VALUES (?, 0, '0') ON CONFLICT DO NOTHING`,

		// An update, which changes nothing, instead of only a lock. The daemon reads in REPEATABLE
		// READ. If it took its snapshot before this transaction, it would continue after a lock and
		// find the removed rows in its snapshot. With an update it gets a serialization failure and
		// begins again.
		Fence: `
UPDATE {offsets} SET offset_acked = offset_acked
WHERE consumer_group = (SELECT consumer_group FROM {offsets} WHERE consumer_group = ? FOR UPDATE SKIP LOCKED)
RETURNING COALESCE(offset_acked, 0), last_processed_transaction_id::text, pg_snapshot_xmax(pg_current_snapshot())::text`,
	}
	reads := &pgSource{
		peekText: `
SELECT (
		SELECT 1 FROM unnest(?::text[], ?::bigint[]) AS l(transaction_id, after)
		CROSS JOIN LATERAL (
			SELECT 1 FROM {source} m
			WHERE m.transaction_id = l.transaction_id::xid8 AND m."offset" > l.after
			ORDER BY m.transaction_id, m."offset" LIMIT 1) f
		LIMIT 1) IS NOT NULL
	OR (
		SELECT 1 FROM {source} m
		WHERE (m.transaction_id, m."offset") > (?::text::xid8, ?::bigint)
		ORDER BY m.transaction_id, m."offset" LIMIT 1) IS NOT NULL,
	transaction_id, row_offset
FROM {sources} WHERE name = ?`,

		pageText: `
SELECT p.transaction_id::text, p."offset", p.uuid, p.payload, p.metadata
FROM (
	(SELECT f.* FROM unnest(?::text[], ?::bigint[]) AS l(transaction_id, after)
	CROSS JOIN LATERAL (
		SELECT m.transaction_id, m."offset", m.uuid, m.payload, m.metadata
		FROM {source} m
		WHERE m.transaction_id = l.transaction_id::xid8 AND m."offset" > l.after
		ORDER BY m.transaction_id, m."offset" LIMIT ?) f
	ORDER BY f.transaction_id, f."offset" LIMIT ?)
	UNION ALL
	(SELECT m.transaction_id, m."offset", m.uuid, m.payload, m.metadata
	FROM {source} m
	WHERE (m.transaction_id, m."offset") > (?::text::xid8, ?::bigint)
	ORDER BY m.transaction_id, m."offset" LIMIT ?)
) p
ORDER BY p.transaction_id, p."offset" LIMIT ?`,

		removeText: `
DELETE FROM {source} m
USING unnest(?::text[], ?::bigint[]) AS r(transaction_id, row_offset)
WHERE m.transaction_id = r.transaction_id::xid8 AND m."offset" = r.row_offset`,
	}
	fillSource(names, dollars, tables, &s.Register, &s.Lock, &s.save, &s.Groups, &s.AddGroup, &s.Fence,
		&reads.peekText, &reads.pageText, &reads.removeText)
	s.reads = reads
	return s
}

func (p *pgSource) peek(name string, r SourceRange) Query {
	transactions, offsets := rowArrays(r.Late)
	return Query{Text: p.peekText, Args: []any{
		transactions, offsets, strconv.FormatInt(r.After.Transaction, 10), r.After.Offset, name,
	}}
}

func (p *pgSource) page(r SourceRange, limit int) Query {
	transactions, offsets := rowArrays(r.Late)
	return Query{Text: p.pageText, Args: []any{
		transactions, offsets, limit, limit, strconv.FormatInt(r.After.Transaction, 10), r.After.Offset, limit, limit,
	}}
}

func (p *pgSource) remove(rows []SourceRow) Query {
	transactions, offsets := rowArrays(rows)
	return Query{Text: p.removeText, Args: []any{transactions, offsets}}
}

// rowArrays writes transaction ids as text, the only type that can be cast to xid8 on all versions.
func rowArrays(rows []SourceRow) (transactions pq.StringArray, offsets pq.Int64Array) {
	transactions, offsets = make(pq.StringArray, len(rows)), make(pq.Int64Array, len(rows))
	for i, row := range rows {
		transactions[i], offsets[i] = strconv.FormatInt(row.Transaction, 10), row.Offset
	}
	return transactions, offsets
}
