package pgtail

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// The statements of a reader of the log, and of who sets the log up, watches it or removes it. The
// names of tables in braces are filled in by package dialect.

// toldNames are the tables whose rows tell that something has changed, beside the messages that are
// ready: messages that wait for their time, what operators do, and processes that join.
var toldNames = []string{"waiting", "audit", "members"}

// publishedTables are the tables of a publication, without the prefix.
func publishedTables() []string { return append([]string{"messages"}, toldNames...) }

// selectPlace identifies the server and the table of a log, and the tables whose rows tell that
// something has changed: see toldNames. The name of the slot belongs to the table, since slots have
// one name space for all databases of a server. There are no arguments, since a session that sends
// the log cannot pass any.
const selectPlace = `
SELECT ` + dialect.PostgresIncarnation + `, 'postbox_' || d.oid::text || '_' || t.id, t.id,
       '{waiting}'::regclass::oid::text, '{audit}'::regclass::oid::text, '{members}'::regclass::oid::text
FROM pg_database d, (SELECT '{messages}'::regclass::oid::text AS id) t WHERE d.datname = current_database()`

// selectPublication tells whether a publication exists, sends inserts alone, includes the table of
// messages, and sends all its rows and columns. Version 14 has no filters. The transactions that
// wrote the two rows of the catalog are its version. The last two columns name those of toldNames
// that it lacks, and count its tables.
const selectPublication = `
SELECT p.pubinsert AND NOT (p.pubupdate OR p.pubdelete OR p.pubtruncate), r.oid IS NOT NULL,
       COALESCE(to_jsonb(r) ->> 'prqual', to_jsonb(r) ->> 'prattrs') IS NULL, concat_ws(' ', p.oid, p.xmin, r.oid, r.xmin),
       array_to_string(ARRAY(
	SELECT t.name FROM (VALUES ('waiting', to_regclass('{waiting}')), ('audit', to_regclass('{audit}')), ('members', to_regclass('{members}'))) AS t(name, id)
	WHERE NOT EXISTS (SELECT 1 FROM pg_publication_rel q WHERE q.prpubid = p.oid AND q.prrelid = t.id)), ' '),
       (SELECT COUNT(*) FROM pg_publication_rel q WHERE q.prpubid = p.oid)
FROM pg_publication p
LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = '{messages}'::regclass
WHERE p.pubname = $1`

// selectServer tells what a server has, for anyone who may connect.
const selectServer = `
SELECT current_setting('server_version_num')::int / 10000, current_setting('wal_level'), pg_is_in_recovery(),
       current_setting('max_replication_slots')::int, (SELECT COUNT(*) FROM pg_replication_slots),
       current_setting('max_wal_senders')::int, (SELECT COUNT(*) FROM pg_stat_replication)`

// selectSlot tells how it stands with a slot. Who reads is empty for a process of which this role
// may see nothing.
const selectSlot = `
SELECT s.temporary, s.slot_type = 'logical' AND s.confirmed_flush_lsn IS NULL, s.active, COALESCE(s.active_pid, 0),
       COALESCE(a.usename, ''), COALESCE(host(a.client_addr), ''),
       COALESCE(pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, s.restart_lsn), 0)::bigint
FROM pg_replication_slots s
LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid
WHERE s.slot_name = $1`

// selectRights tells whether this role may make the publication: its name, that of the owner of the
// table of messages, whether it has the rights of that owner, the database, and whether it may
// create objects there. Then comes the schema of the table, and whether another role, that of the
// reader, may look into it.
const selectRights = `
SELECT current_user, pg_get_userbyid(c.relowner), pg_has_role(c.relowner, 'USAGE'), current_database(), has_database_privilege(current_database(), 'CREATE'),
       c.relnamespace::regnamespace::text, has_schema_privilege(COALESCE($1::name, current_user), c.relnamespace, 'USAGE')
FROM pg_class c WHERE c.oid = '{messages}'::regclass`

// createPublication publishes the inserts into tables.
func createPublication(names dialect.Names, name string) string {
	return fmt.Sprintf("CREATE PUBLICATION %s FOR TABLE %s WITH (publish = 'insert')", name, only(names, publishedTables()))
}

// addToPublication adds tables to a publication.
func addToPublication(names dialect.Names, name string, tables []string) string {
	return fmt.Sprintf("ALTER PUBLICATION %s ADD TABLE %s", name, only(names, tables))
}

// dropFromPublication takes tables out of a publication.
func dropFromPublication(names dialect.Names, name string, tables []string) string {
	return fmt.Sprintf("ALTER PUBLICATION %s DROP TABLE %s", name, only(names, tables))
}

// only lists tables, each without those that inherit from it, as the table of messages that wait
// does from that of messages.
func only(names dialect.Names, tables []string) string {
	list := make([]string, len(tables))
	for i, table := range tables {
		list[i] = "ONLY " + names.Table(table)
	}
	return strings.Join(list, ", ")
}

// publishInserts makes a publication send inserts alone.
func publishInserts(publication string) string {
	return fmt.Sprintf("ALTER PUBLICATION %s SET (publish = 'insert')", publication)
}

// dropPublication removes a publication.
func dropPublication(name string) string {
	return "DROP PUBLICATION IF EXISTS " + name
}

// createSlot makes a slot that ends with its session.
func createSlot(name string) string {
	return fmt.Sprintf("CREATE_REPLICATION_SLOT %s TEMPORARY LOGICAL pgoutput NOEXPORT_SNAPSHOT", name)
}

// startReplication sends the log from a slot, as far as it concerns a publication. binary needs
// version 14.
func startReplication(slot, publication string, binary bool) string {
	option := ""
	if binary {
		option = ", binary 'true'"
	}
	return fmt.Sprintf("START_REPLICATION SLOT %s LOGICAL 0/0 (proto_version '1', publication_names '%s'%s)", slot, publication, option)
}

// dropSlot drops a slot.
func dropSlot(name string) string {
	return fmt.Sprintf("SELECT pg_drop_replication_slot('%s')", name)
}

// waitLong lets a session wait for all transactions that are open. The time limits of a role or a
// database are not meant for that. Those that the session was opened with stay. It asks the server
// which limits there are: transaction_timeout came with version 17.
const waitLong = "SELECT set_config(name, '0', false) FROM pg_settings WHERE source <> 'client' AND name IN ('statement_timeout', 'lock_timeout', 'transaction_timeout', 'idle_session_timeout')"

// makeReader lets a role read the log.
func makeReader(role string) string {
	return "ALTER ROLE " + quote(role) + " LOGIN REPLICATION"
}

// grantSchema lets a role look into a schema.
func grantSchema(schema, role string) string {
	return "GRANT USAGE ON SCHEMA " + schema + " TO " + quote(role)
}

// grantOwner gives a role the rights of an owner.
func grantOwner(owner, role string) string {
	return "GRANT " + quote(owner) + " TO " + quote(role)
}

// grantCreate lets a role make publications in a database.
func grantCreate(database, role string) string {
	return "GRANT CREATE ON DATABASE " + quote(database) + " TO " + quote(role)
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }
