package dialect

import (
	"fmt"

	"github.com/lib/pq"
)

// logRights tells which rights roles lack to store messages of the log: the role, the rights, and on what. These are the rights of docs/security.md that only such
// a forwarder needs, or without which it cannot store. Anyone may ask for those of each role.
const logRights = `
SELECT a.rolname, n.lacks, n.object FROM pg_roles a
JOIN pg_class c ON c.oid = '{messages}'::regclass
CROSS JOIN LATERAL (VALUES
	(1, 'USAGE', 'SCHEMA ' || c.relnamespace::regnamespace::text, has_schema_privilege(a.oid, c.relnamespace, 'USAGE')),
	(2, 'SELECT, UPDATE', '{log_position}', has_table_privilege(a.oid, '{log_position}', 'SELECT') AND has_table_privilege(a.oid, '{log_position}', 'UPDATE')),
	(3, 'SELECT, INSERT', '{messages}', has_table_privilege(a.oid, '{messages}', 'SELECT') AND has_table_privilege(a.oid, '{messages}', 'INSERT')),
	(4, 'SELECT, INSERT', '{waiting}', has_table_privilege(a.oid, '{waiting}', 'SELECT') AND has_table_privilege(a.oid, '{waiting}', 'INSERT')),
	(5, 'USAGE', 'SEQUENCE {messages}_id_seq', has_sequence_privilege(a.oid, '{messages}_id_seq', 'USAGE')),
	(6, 'SELECT', '{spools}', has_table_privilege(a.oid, '{spools}', 'SELECT')),
	(7, 'INSERT (name, lanes)', '{spools}', has_column_privilege(a.oid, '{spools}', 'name', 'INSERT') AND has_column_privilege(a.oid, '{spools}', 'lanes', 'INSERT')),
	(8, 'SELECT', '{pauses}', has_table_privilege(a.oid, '{pauses}', 'SELECT')),
	(9, 'SELECT', '{topic_pauses}', has_table_privilege(a.oid, '{topic_pauses}', 'SELECT'))
) n (place, lacks, object, has)
WHERE NOT n.has AND `

var (
	// ownLogRights is logRights of this role.
	ownLogRights = logRights + `a.rolname = current_user ORDER BY n.place`
	// readersLogRights is logRights of the roles that forwarders with the log may have: those that may store the position, which no other role needs.
	readersLogRights = logRights + `a.rolcanlogin AND has_table_privilege(a.oid, '{log_position}', 'UPDATE') ORDER BY a.rolname, n.place`
)

// readerSchema tells in which schema the table of messages is, and whether a role may look into that one.
const readerSchema = `
SELECT c.relnamespace::regnamespace::text, has_schema_privilege(?::name, c.relnamespace, 'USAGE') FROM pg_class c WHERE c.oid = '{messages}'::regclass`

// GrantLogRight returns the statement that gives a role what it lacks, as the statements for these rights return it.
func GrantLogRight(rights, object, role string) string {
	return fmt.Sprintf("GRANT %s ON %s TO %s", rights, object, pq.QuoteIdentifier(role))
}
