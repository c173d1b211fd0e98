package dialect

import (
	"fmt"

	"github.com/lib/pq"
)

// The statements that look at the server for who sets the log up, watches it or removes it.
// PostgreSQL alone has them.

// logServerState tells what a server has, for anyone who may connect.
const logServerState = `
SELECT current_setting('server_version_num')::int / 10000, current_setting('wal_level'), pg_is_in_recovery(),
       current_setting('max_replication_slots')::int, (SELECT COUNT(*) FROM pg_replication_slots),
       current_setting('max_wal_senders')::int, (SELECT COUNT(*) FROM pg_stat_replication)`

// logSlotState tells how it stands with a slot. Who reads is empty for a process of which this role
// may see nothing.
const logSlotState = `
SELECT s.temporary, s.slot_type = 'logical' AND s.confirmed_flush_lsn IS NULL, s.active, COALESCE(s.active_pid, 0),
       COALESCE(a.usename, ''), COALESCE(host(a.client_addr), ''),
       COALESCE(pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, s.restart_lsn), 0)::bigint
FROM pg_replication_slots s
LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid
WHERE s.slot_name = ?`

// logRights tells whether this role may make the publication: its name, that of the owner of the
// table of messages, whether it has the rights of that owner, the database, and whether it may
// create objects there. Then comes the schema of the table, and whether another role, that of the
// reader, may look into it.
const logRights = `
SELECT current_user, pg_get_userbyid(c.relowner), pg_has_role(c.relowner, 'USAGE'), current_database(), has_database_privilege(current_database(), 'CREATE'),
       c.relnamespace::regnamespace::text, has_schema_privilege(COALESCE(?::name, current_user), c.relnamespace, 'USAGE')
FROM pg_class c WHERE c.oid = '{messages}'::regclass`

// GrantSchema returns the statement that lets a role look into a schema.
func GrantSchema(schema, role string) string {
	return "GRANT USAGE ON SCHEMA " + schema + " TO " + pq.QuoteIdentifier(role)
}

// WaitLong returns the statement that lets a session wait for all transactions that are open. The
// time limits of a role or a database are not meant for that. Those that the session was opened
// with stay. It asks the server which limits there are: transaction_timeout came with version 17.
func WaitLong() string {
	return "SELECT set_config(name, '0', false) FROM pg_settings WHERE source <> 'client' AND name IN ('statement_timeout', 'lock_timeout', 'transaction_timeout', 'idle_session_timeout')"
}

// PublishInserts returns the statement that makes a publication send inserts alone.
func (s *Statements) PublishInserts(publication string) string {
	return fmt.Sprintf("ALTER PUBLICATION %s SET (publish = 'insert')", publication)
}

// MakeReader returns the statement that lets a role read the log.
func MakeReader(role string) string {
	return "ALTER ROLE " + pq.QuoteIdentifier(role) + " LOGIN REPLICATION"
}

// GrantOwner returns the statement that gives a role the rights of an owner.
func GrantOwner(owner, role string) string {
	return "GRANT " + pq.QuoteIdentifier(owner) + " TO " + pq.QuoteIdentifier(role)
}

// GrantCreate returns the statement that lets a role make publications in a database.
func GrantCreate(database, role string) string {
	return "GRANT CREATE ON DATABASE " + pq.QuoteIdentifier(database) + " TO " + pq.QuoteIdentifier(role)
}
