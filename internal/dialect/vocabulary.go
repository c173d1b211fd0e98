package dialect

import "strings"

// vocabulary replaces the names of tables, and what databases write differently, in texts of
// packages without files of statements: see [Statements.Text].
func vocabulary(kind Kind, names Names) *strings.Replacer {
	subject := map[Kind]string{
		PostgreSQL: "'m'::bytea || int8send(m.id) || int8send(m.created_at)",
		MySQL:      "CONCAT(X'6D', UNHEX(LPAD(HEX(m.id), 16, '0')), UNHEX(LPAD(HEX(m.created_at), 16, '0')))",
		SQLite:     "unhex('6d' || printf('%016x', m.id) || printf('%016x', m.created_at))",
	}
	return names.replacer("{subject of m}", subject[kind])
}
