package dialect

// mysqlRemove removes several messages. STRAIGHT_JOIN: from the list to the messages by their
// primary key, never the other way round.
const mysqlRemove = `
DELETE m FROM JSON_TABLE(:refs, '$[*]' COLUMNS (lane INT PATH '$[0]', token BIGINT PATH '$[1]', id BIGINT PATH '$[2]',
	created_at BIGINT PATH '$[3]')) s
STRAIGHT_JOIN {messages} m FORCE INDEX (PRIMARY) ON m.id = s.id
STRAIGHT_JOIN {lanes} l ON l.spool = m.spool AND l.lane = s.lane AND l.token = s.token
WHERE m.spool = :spool AND m.lane = s.lane AND m.created_at = s.created_at` + inTransaction

// mysqlRemoveOne removes one message, as a handler's transaction does. The server finds either row
// by its primary key before it executes anything. The list of mysqlRemove would be a table of its
// own, which costs the server a third of the statement. As there, the row of the lane is locked, so
// the token is the one that is committed last, and not that of the transaction's snapshot.
const mysqlRemoveOne = `
DELETE m FROM {messages} m FORCE INDEX (PRIMARY)
STRAIGHT_JOIN {lanes} l ON l.spool = m.spool AND l.lane = m.lane AND l.token = :token
WHERE m.id = :id AND m.spool = :spool AND m.lane = :lane AND m.created_at = :created_at` + inTransaction

func (m mysql) remove(spool int64, refs []Ref) Query {
	if len(refs) != 1 {
		return m.repeated.remove(spool, refs)
	}
	ref := refs[0]
	return m.removeOne.with(args{"spool": spool, "lane": ref.Lane, "id": ref.ID, "created_at": ref.CreatedAt, "token": ref.Token})
}
