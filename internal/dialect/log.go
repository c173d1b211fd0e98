package dialect

import (
	"fmt"
	"strings"
)

// The statements for tailing the log of PostgreSQL. Other databases have none.

// logServer identifies the server and the table of a log, and the tables whose rows tell that
// something has changed: see toldNames. The name of the slot belongs to the table, since slots have
// one name space for all databases of a server.
const logServer = `
SELECT ` + postgresIncarnation + `, 'postbox_' || d.oid::text || '_' || t.id, t.id,
       '{waiting}'::regclass::oid::text, '{audit}'::regclass::oid::text, '{members}'::regclass::oid::text
FROM pg_database d, (SELECT '{messages}'::regclass::oid::text AS id) t WHERE d.datname = current_database()`

// publication tells whether a publication exists, sends inserts alone, includes the table of
// messages, and sends all its rows and columns. Version 14 has no filters. The transactions that
// wrote the two rows of the catalog are its version. The last two columns name those of toldNames
// that it lacks, and count its tables.
const publication = `
SELECT p.pubinsert AND NOT (p.pubupdate OR p.pubdelete OR p.pubtruncate), r.oid IS NOT NULL,
       COALESCE(to_jsonb(r) ->> 'prqual', to_jsonb(r) ->> 'prattrs') IS NULL, concat_ws(' ', p.oid, p.xmin, r.oid, r.xmin),
       array_to_string(ARRAY(
	SELECT t.name FROM (VALUES ('waiting', to_regclass('{waiting}')), ('audit', to_regclass('{audit}')), ('members', to_regclass('{members}'))) AS t(name, id)
	WHERE NOT EXISTS (SELECT 1 FROM pg_publication_rel q WHERE q.prpubid = p.oid AND q.prrelid = t.id)), ' '),
       (SELECT COUNT(*) FROM pg_publication_rel q WHERE q.prpubid = p.oid)
FROM pg_publication p
LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = '{messages}'::regclass
WHERE p.pubname = ?`

// PublishedTables are the tables of a publication, without the prefix: that of the messages first,
// and then those whose rows tell that something has changed.
func PublishedTables() []string { return append([]string{"messages"}, toldNames...) }

// CreatePublication returns the statement that publishes the inserts into [PublishedTables].
func (s *Statements) CreatePublication(name string) string {
	return fmt.Sprintf("CREATE PUBLICATION %s FOR TABLE %s WITH (publish = 'insert')", name, s.only(PublishedTables()))
}

// AddToPublication returns the statement that adds tables to a publication.
func (s *Statements) AddToPublication(name string, tables []string) string {
	return fmt.Sprintf("ALTER PUBLICATION %s ADD TABLE %s", name, s.only(tables))
}

// DropFromPublication returns the statement that takes tables out of a publication.
func (s *Statements) DropFromPublication(name string, tables []string) string {
	return fmt.Sprintf("ALTER PUBLICATION %s DROP TABLE %s", name, s.only(tables))
}

// only lists tables, each without those that inherit from it, as the table of messages that wait
// does from that of messages.
func (s *Statements) only(tables []string) string {
	names := make([]string, len(tables))
	for i, table := range tables {
		names[i] = "ONLY " + s.Names.Table(table)
	}
	return strings.Join(names, ", ")
}

// DropPublication returns the statement that removes a publication.
func (s *Statements) DropPublication(name string) string {
	return "DROP PUBLICATION IF EXISTS " + name
}

// CreateSlot returns the command that makes a slot that ends with its session.
func (s *Statements) CreateSlot(name string) string {
	return fmt.Sprintf("CREATE_REPLICATION_SLOT %s TEMPORARY LOGICAL pgoutput NOEXPORT_SNAPSHOT", name)
}

// StartReplication returns the command that sends the log from a slot, as far as it concerns a
// publication. binary needs version 14.
func (s *Statements) StartReplication(slot, publication string, binary bool) string {
	option := ""
	if binary {
		option = ", binary 'true'"
	}
	return fmt.Sprintf("START_REPLICATION SLOT %s LOGICAL 0/0 (proto_version '1', publication_names '%s'%s)", slot, publication, option)
}

// DropSlot returns the statement that drops a slot.
func (s *Statements) DropSlot(name string) string {
	return fmt.Sprintf("SELECT pg_drop_replication_slot('%s')", name)
}

// usePostgresLog sets the statements.
func (s *Statements) usePostgresLog() {
	s.LogServer, s.Publication, s.idleLook.text = logServer, publication, idleLook
	s.LogServerState, s.LogSlotState, s.LogRights = logServerState, logSlotState, logRights
}
