package dialect

// mysqlSourceReads reads the table of DefaultMySQLSchema, whose primary key is `offset`.
type mysqlSourceReads struct {
	peekText, pageText, removeText string
}

func mysqlSource(names Names, tables replacer) *SourceStatements {
	s := &SourceStatements{
		Register: `
INSERT IGNORE INTO {sources} (name, transaction_id, row_offset) VALUES (?, 0, 0)`,

		Lock: `
SELECT transaction_id, row_offset, '' FROM {sources} WHERE name = ? FOR UPDATE SKIP LOCKED`,

		save: `
UPDATE {sources} SET transaction_id = ?, row_offset = ? WHERE name = ?`,

		Groups: `
SELECT consumer_group, consumer_group = ? FROM {offsets} ORDER BY consumer_group LIMIT 100`,

		AddGroup: `
INSERT IGNORE INTO {offsets} (consumer_group, offset_acked, offset_consumed) VALUES (?, 0, 0)`,

		// The daemon reads in SERIALIZABLE: after it has waited for this lock, it sees the deletes.
		Fence: `
SELECT COALESCE(offset_acked, 0), 0, 0 FROM {offsets} WHERE consumer_group = ? FOR UPDATE SKIP LOCKED`,
	}
	reads := &mysqlSourceReads{
		peekText: `
SELECT EXISTS (SELECT 1 FROM {source} m WHERE m.` + "`offset`" + ` > ?), transaction_id, row_offset
FROM {sources} WHERE name = ?`,

		// No lock, because it would wait for producers that have not committed.
		pageText: `
SELECT 0, m.` + "`offset`" + `, m.uuid, m.payload, m.metadata
FROM {source} m
WHERE m.` + "`offset`" + ` > ?
ORDER BY m.` + "`offset`" + ` LIMIT ?`,

		// STRAIGHT_JOIN: from the list to the rows by their primary key, never the other way round.
		removeText: `
DELETE m FROM JSON_TABLE(?, '$[*]' COLUMNS (n BIGINT PATH '$')) r
STRAIGHT_JOIN {source} m ON m.` + "`offset`" + ` = r.n`,
	}
	fillSource(names, unchanged, tables, &s.Register, &s.Lock, &s.save, &s.Groups, &s.AddGroup, &s.Fence,
		&reads.peekText, &reads.pageText, &reads.removeText)
	s.reads = reads
	return s
}

func (m *mysqlSourceReads) peek(name string, r SourceRange) Query {
	return Query{Text: m.peekText, Args: []any{r.After.Offset, name}}
}

func (m *mysqlSourceReads) page(r SourceRange, limit int) Query {
	return Query{Text: m.pageText, Args: []any{r.After.Offset, limit}}
}

func (m *mysqlSourceReads) remove(rows []SourceRow) Query {
	offsets := make([]int64, len(rows))
	for i, row := range rows {
		offsets[i] = row.Offset
	}
	return Query{Text: m.removeText, Args: []any{List(offsets)}}
}
