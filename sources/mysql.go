package sources

import "github.com/postbox-go/watermill-postbox/internal/dialect"

// mysqlStatements read the table of DefaultMySQLSchema, whose primary key is `offset`.
func mysqlStatements() *statements {
	return &statements{
		register: `
INSERT IGNORE INTO {sources} (name, transaction_id, row_offset) VALUES (?, 0, 0)`,

		lock: `
SELECT transaction_id, row_offset, '' FROM {sources} WHERE name = ? FOR UPDATE SKIP LOCKED`,

		save: `
UPDATE {sources} SET transaction_id = ?, row_offset = ? WHERE name = ?`,

		groups: `
SELECT consumer_group, consumer_group = ? FROM {offsets} ORDER BY consumer_group LIMIT 100`,

		addGroup: `
INSERT IGNORE INTO {offsets} (consumer_group, offset_acked, offset_consumed) VALUES (?, 0, 0)`,

		// The daemon reads in SERIALIZABLE: after it has waited for this lock, it sees the deletes.
		fence: `
SELECT COALESCE(offset_acked, 0), 0, 0 FROM {offsets} WHERE consumer_group = ? FOR UPDATE SKIP LOCKED`,

		peek: `
SELECT EXISTS (SELECT 1 FROM {source} m WHERE m.` + "`offset`" + ` > ?), transaction_id, row_offset
FROM {sources} WHERE name = ?`,

		// No lock, because it would wait for producers that have not committed.
		page: `
SELECT 0, m.` + "`offset`" + `, m.uuid, m.payload, m.metadata
FROM {source} m
WHERE m.` + "`offset`" + ` > ?
ORDER BY m.` + "`offset`" + ` LIMIT ?`,

		// STRAIGHT_JOIN: from the list to the rows by their primary key, never the other way round.
		remove: `
DELETE m FROM JSON_TABLE(?, '$[*]' COLUMNS (n BIGINT PATH '$')) r
STRAIGHT_JOIN {source} m ON m.` + "`offset`" + ` = r.n`,

		rows: byOffset{},
	}
}

// byOffset identifies a row by its offset alone.
type byOffset struct{}

func (byOffset) peek(name string, r position) []any { return []any{r.After.Offset, name} }

func (byOffset) page(r position, limit int) []any { return []any{r.After.Offset, limit} }

func (byOffset) remove(rows []rowID) []any {
	offsets := make([]int64, len(rows))
	for i, row := range rows {
		offsets[i] = row.Offset
	}
	return []any{dialect.List(offsets)}
}
