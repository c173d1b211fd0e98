package dialect

import (
	"fmt"

	"github.com/lib/pq"
)

// The statements that look at the server for operators who set the log up, watch it or remove it. PostgreSQL alone has them.

// logServerState tells what a server has, for anyone who may connect. Settings that the version does not have are empty.
const logServerState = `
SELECT current_setting('server_version_num')::int / 10000, current_setting('wal_level'), pg_is_in_recovery(),
       current_setting('max_replication_slots')::int, (SELECT COUNT(*) FROM pg_replication_slots),
       current_setting('max_wal_senders')::int, (SELECT COUNT(*) FROM pg_stat_replication),
       COALESCE(current_setting('max_slot_wal_keep_size', true), ''), COALESCE(current_setting('idle_replication_slot_timeout', true), ''),
       COALESCE(current_setting('synchronized_standby_slots', true), ''), EXISTS (SELECT 1 FROM pg_replication_slots WHERE slot_type = 'physical')`

// LogReader is how the application_name of a process of Postbox begins that reads the log. Anyone may see that of each process.
const LogReader = "postbox log reader"

// logReached is how far the log of a server has come, also on a standby.
const logReached = `CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END`

// logSlotState tells how it stands with a slot. The columns of later versions are read by name. Who reads is empty for a process
// of which this role may see nothing.
const logSlotState = `
SELECT s.temporary, s.plugin IS NOT DISTINCT FROM 'pgoutput' AND s.database = current_database(), s.slot_type = 'logical' AND s.confirmed_flush_lsn IS NULL, s.active, COALESCE(s.active_pid, 0), COALESCE(a.usename, ''), COALESCE(a.application_name, '` + LogReader + `'), COALESCE(host(a.client_addr), ''),
       COALESCE(s.wal_status, ''), COALESCE(to_jsonb(s) ->> 'invalidation_reason', ''),
       COALESCE(pg_wal_lsn_diff(e.reached, s.restart_lsn), 0)::bigint, COALESCE(pg_wal_lsn_diff(e.reached, s.confirmed_flush_lsn), 0)::bigint,
       COALESCE(to_jsonb(s) ->> 'failover' = 'true', FALSE), COALESCE(to_jsonb(s) ->> 'synced' = 'true', FALSE)
FROM pg_replication_slots s
CROSS JOIN (SELECT ` + logReached + ` AS reached) e
LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid
WHERE s.slot_name = ?`

// publicationRights tells whether this role may make the publication: its name, that of the owner of the table of messages, whether
// it has the rights of that owner, the database, and whether it may create objects there.
const publicationRights = `
SELECT current_user, pg_get_userbyid(c.relowner), pg_has_role(c.relowner, 'USAGE'), current_database(), has_database_privilege(current_database(), 'CREATE')
FROM pg_class c WHERE c.oid = '{messages}'::regclass`

// publicationOwner tells who owns a publication, and whether this role has the rights of that one.
const publicationOwner = `
SELECT current_user, pg_get_userbyid(p.pubowner), pg_has_role(p.pubowner, 'USAGE') FROM pg_publication p WHERE p.pubname = ?`

// waitBriefly makes a transaction wait for a lock for a moment only: publishers wait behind it.
const waitBriefly = "SET LOCAL lock_timeout = '500ms'"

// lockHolder tells of a transaction that has a lock: its process, or 0 and its name if it was prepared, and what anyone may see of that process. A prepared one is known by its number, on which it has a lock, too.
const lockHolder = `
SELECT COALESCE(l.pid, 0), COALESCE((
       SELECT x.gid FROM pg_locks t JOIN pg_prepared_xacts x ON x.transaction = t.transactionid
       WHERE l.pid IS NULL AND t.pid IS NULL AND t.virtualtransaction = l.virtualtransaction LIMIT 1), ''), COALESCE(a.usename, ''), COALESCE(a.application_name, '')
FROM pg_locks l
LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.granted AND `

// oldestTransaction is that of the whole server which has written something. A transaction has a lock on its own number.
const oldestTransaction = lockHolder + `l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' ORDER BY age(l.transactionid) DESC LIMIT 1`

// publicationUser is a transaction that keeps a publication from being dropped.
const publicationUser = lockHolder + `l.locktype = 'object' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.classid = 'pg_publication'::regclass AND l.objid = (SELECT p.oid FROM pg_publication p WHERE p.pubname = ?) ORDER BY l.pid LIMIT 1`

// OldestTransaction returns the oldest transaction that has written something.
func (s *Statements) OldestTransaction() Query { return Query{Text: s.oldestTransaction} }

// PublicationUser returns a transaction that keeps a publication from being dropped.
func (s *Statements) PublicationUser(publication string) Query {
	return Query{Text: s.publicationUser, Args: []any{publication}}
}

// setUpLock is the first number of the advisory lock of a process that sets up the log. The second is the table of messages. The session has the lock until it ends.
const setUpLock = 0x706f7374 // "post"

// setUpHolder is the session that has that lock.
var setUpHolder = lockHolder + fmt.Sprintf(`l.locktype = 'advisory' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.classid = %d AND l.objid = ? AND l.objsubid = 2`, setUpLock)

// LockSetUp returns the statement that waits until no other session sets up the log of a table of messages.
func (s *Statements) LockSetUp(table uint32) string {
	return fmt.Sprintf("SELECT pg_advisory_lock(%d, %d)", setUpLock, int32(table)) //nolint:gosec // the server shows the same number without a sign
}

// SetUpHolder returns the session that sets up the log.
func (s *Statements) SetUpHolder(table uint32) Query {
	return Query{Text: s.setUpHolder, Args: []any{int64(table)}}
}

// DropPublicationSoon returns the statements that remove a publication if no transaction keeps it for longer than a moment. Publishers wait behind the statement.
func (s *Statements) DropPublicationSoon(name string) []string {
	return []string{waitBriefly, s.DropPublication(name)}
}

// WaitLong returns the statement that lets a session wait for all transactions that are open. The time limits of a role or a database are not meant for that. Those that the session was opened with stay.
// It asks the server which limits there are: transaction_timeout came with version 17.
func WaitLong() string {
	return "SELECT set_config(name, '0', false) FROM pg_settings WHERE source <> 'client' AND name IN ('statement_timeout', 'lock_timeout', 'transaction_timeout', 'idle_session_timeout')"
}

// FlushLog returns the statements that write the log to the disk. They need no right.
func FlushLog() []string {
	return []string{"SET synchronous_commit = local", "SELECT pg_logical_emit_message(true, '" + OutboxPrefix + "flush', ''::text)"}
}

// PublishInserts returns the statement that makes a publication send inserts alone.
func (s *Statements) PublishInserts(publication string) string {
	return fmt.Sprintf("ALTER PUBLICATION %s SET (publish = 'insert')", publication)
}

// AlterSlotFailover returns the command by which standbys keep a slot, or do not. It needs version 17, and that no process reads.
func (s *Statements) AlterSlotFailover(name string, failover bool) string {
	return fmt.Sprintf("ALTER_REPLICATION_SLOT %s ( FAILOVER %t )", name, failover)
}

// EndReader returns the statement that ends the process that reads from a slot. It returns whether there was one.
func (s *Statements) EndReader(slot string) string {
	return fmt.Sprintf("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '%s' AND active_pid IS NOT NULL", slot)
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
