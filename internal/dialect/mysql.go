package dialect

import "database/sql"

// mysql reads each lane in a part of its own, or all lanes in one part, because MariaDB has no
// LATERAL.
type mysql struct {
	repeated
	rows mysqlRows
}

// newMySQL returns the statements for MySQL 8 and MariaDB 10.6 and later.
func newMySQL(names Names) *Statements {
	s := newStatements(MySQL, names)
	// Under REPEATABLE READ a delete locks the gaps around the rows it finds, and waits for
	// transactions that insert there. Producers then wait for the delete, so one long transaction
	// would hold up all of them.
	s.Isolation, s.Isolate = sql.LevelReadCommitted, true
	s.ReadsUpTo = true
	s.MaxAppend = 65535 / 12 // parameters a statement, parameters a row
	messages, claims := s.rows("Append"), s.rows("IngestClaims")
	messages.further = s.of("AppendRow").text
	s.lists = mysql{
		repeated: repeated{Statements: s, messages: messages, claims: claims},
		rows:     mysqlRows{head: messages.head, claimHead: claims.head, now: s.of("Now").text, holdWriter: s.of("HoldWriter").text},
	}
	return s
}

// WriterGroups is the number of rows in the table writers. A transaction locks the row that belongs
// to the current 25 ms. So a row becomes free when its 25 ms are over and the last transaction that
// locked it has ended.
const WriterGroups = 64
