package dialect

import (
	"fmt"
	"strings"
)

// The statements that add messages to the log of PostgreSQL, and fail if no process could read them there. None needs a right on any table.

// readsUnpublished is true if the server reads its log also where there was no publication. Version 18 is the first one.
const readsUnpublished = `current_setting('server_version_num')::int >= 180000`

// keepsPublication returns a condition that is true, or fails with an error for [LogLackOf]. It sees what was committed last, in any isolation.
// The function locks the publication until the transaction ends: until then the server lets no other one drop or rename it. So what is committed with it is in the log before, where the server can read it.
// is compares the oid of the publication.
func keepsPublication(name, is string) string {
	return `(` + readsUnpublished + ` OR (pg_get_object_address('publication', ARRAY[` + name + `], ARRAY[]::text[])).objid ` + is + `)`
}

// publicationMark begins the comment on a publication. The transaction that wrote its row follows.
const publicationMark = "Publishers of Postbox rely on this publication as it was left by transaction "

// publicationComment is the comment on a publication p. To call obj_description takes four times as long.
const publicationComment = `(SELECT d.description FROM pg_description d WHERE d.objoid = p.oid AND d.classoid = 'pg_publication'::regclass AND d.objsubid = 0)`

// trusted is true for a publication p with which the server can read all that the slot s has to read. An operator has found that, and the publication has been as it is since then. Or it is
// older than all of that. Each change of its row that is not one of its tables, and so each new name, makes it younger. An age is counted from the transaction that asks, and is below 0 for what
// was written by a later one: for a publication that has changed since then, and never for what is old.
const trusted = `(` + readsUnpublished + ` OR ` + publicationComment + ` = '` + publicationMark + `' || p.xmin::text OR age(p.xmin) > age(s.catalog_xmin))`

// These settings do not exist: to read one is an error, which also those transactions report of which only errors are known. See [LogLackOf].
const (
	slotMissing        = "postbox.the_slot_of_the_outbox_is_missing"
	publicationMissing = "postbox.the_publication_of_the_outbox_is_missing"
	publicationChanged = "postbox.the_publication_of_the_outbox_was_changed"
)

// outboxSlotName is the name of the slot, and of its publication. The last folder with the table has the number of the database: to look that up in pg_database makes emit take half as long again.
const outboxSlotName = `format('postbox_%s_%s` + OutboxSlotSuffix + `', split_part(pg_relation_filepath('{messages}'::regclass), '/', -2), '{messages}'::regclass::oid)`

const (
	// slotSeen is a setting of a session of the server. It says of which tables the session has seen the slot, and in which second. The next transaction may find other tables, by its search_path.
	slotSeen = "postbox.slot_seen"
	// seenNow is its value if that was in this second.
	seenNow = `'{messages}'::regclass::oid::text || ' ' || floor(date_part('epoch', statement_timestamp()))::bigint::text`
)

// emit adds a message to the log, if the transaction commits. It returns no row, and adds nothing, if the session has not seen the slot in this second: to look for it costs as much again.
var emit = `
SELECT pg_logical_emit_message(true, CASE WHEN ` + keepsPublication(outboxSlotName, `IS NOT NULL`) + `
THEN '` + OutboxPrefix + `' || '{messages}'::regclass::oid::text ELSE current_setting('` + publicationMissing + `') END, ?::bytea)
WHERE current_setting('` + slotSeen + `', true) = ` + seenNow + ``

// emitChecked looks for the slot, and fails unless there is one that keeps the message, and its publication is trusted. A slot that is still being made has no confirmed position, and keeps nothing
// that is committed before it is complete. The publication that is locked must be the one that is looked at: while the statement waited for the lock, another one may have taken its name.
var emitChecked = `
SELECT pg_logical_emit_message(true, COALESCE((
	SELECT CASE WHEN ` + keepsPublication(`s.slot_name::text`, `= p.oid`) + `
	       THEN CASE WHEN ` + trusted + ` THEN left(set_config('` + slotSeen + `', ` + seenNow + `, false), 0) || '` + OutboxPrefix + `' || '{messages}'::regclass::oid::text ELSE current_setting('` + publicationChanged + `') END
	       ELSE current_setting('` + publicationMissing + `') END
	FROM pg_get_replication_slots() s LEFT JOIN pg_publication p ON p.pubname = s.slot_name
	WHERE s.datoid = (SELECT oid FROM pg_database WHERE datname = current_database())
	  AND s.slot_name = 'postbox_' || s.datoid::text || '_' || '{messages}'::regclass::oid::text || '` + OutboxSlotSuffix + `'
	  AND s.plugin = 'pgoutput' AND s.confirmed_flush_lsn IS NOT NULL AND s.wal_status IS DISTINCT FROM 'lost'),
current_setting('` + slotMissing + `')), ?::bytea)`

// publicationTrust tells which transaction wrote the publication of a slot, and whether it is trusted.
const publicationTrust = `
SELECT p.xmin::text, COALESCE(` + trusted + `, FALSE) FROM pg_publication p LEFT JOIN pg_replication_slots s ON s.slot_name = p.pubname WHERE p.pubname = ?`

// openTransactions are those of the whole server that have written something. A snapshot may know nothing of the youngest ones: it ends after the last transaction that has ended.
const openTransactions = `SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint`

// newTransaction has a larger number than all that are open.
const newTransaction = `SELECT pg_current_xact_id()::text::bigint`

// MarkPublication returns the statement that makes publishers rely on a publication, as long as it is as a transaction has left it. See [Statements.PublicationTrust].
func (s *Statements) MarkPublication(name, transaction string) string {
	return fmt.Sprintf("COMMENT ON PUBLICATION %s IS '%s%s'", name, publicationMark, transaction)
}

// Emit adds messages to the log, and returns a row. It fails if the publication is gone, and if it is checked, also unless there is a slot and the publication is trusted, with errors for [LogLackOf]. If it is
// not checked, and the session has not seen the slot within this second, it does nothing and returns no row.
func (s *Statements) Emit(piece []byte, checked bool) Query {
	text := s.emit
	if checked {
		text = s.emitChecked
	}
	return Query{Text: text, Args: []any{piece}}
}

// LogLack is why a message in the log could not be read there.
type LogLack int

// What the log may lack.
const (
	LacksNothing LogLack = iota
	LacksSlot
	LacksPublication
	LacksTrust // in the publication
)

// LogLackOf returns why [Statements.Emit] failed, as far as the log is the reason.
func LogLackOf(err error) LogLack {
	said, found := findReport(err, PostgreSQL)
	switch {
	case !found || said.state != "42704": // an object or a setting that does not exist
		return LacksNothing
	case strings.Contains(err.Error(), slotMissing):
		return LacksSlot
	case strings.Contains(err.Error(), publicationChanged):
		return LacksTrust
	}
	return LacksPublication
}
