package dialect

import (
	"fmt"
	"math"
	"strings"

	"github.com/lib/pq"
)

// The statements for messages that are in the log of PostgreSQL alone until a forwarder has stored them. Other databases
// have none.

// OutboxSlotSuffix ends the name of the permanent slot of an outbox in the log. The beginning is the name of the
// temporary slot, see [Statements.LogServer].
const OutboxSlotSuffix = "_outbox"

// OutboxPrefix begins the prefix of messages in the log. The oid of the table of messages follows.
const OutboxPrefix = "postbox_"

// lsn returns an expression for a position in the log as a number.
func lsn(position string) string { return "pg_wal_lsn_diff(" + position + ", '0/0')::bigint" }

// outboxSlot tells what a slot is like.
var outboxSlot = `
SELECT plugin IS NOT DISTINCT FROM 'pgoutput' AND NOT temporary AND database = current_database(), active, wal_status IS NOT DISTINCT FROM 'lost', ` + lsn("COALESCE(confirmed_flush_lsn, '0/0')") + `
FROM pg_replication_slots WHERE slot_name = ?`

// orphanedSlots returns the slots of outboxes of this database whose table of messages is gone, and how many bytes of its log the server keeps for each.
var orphanedSlots = `
SELECT s.slot_name, COALESCE(pg_wal_lsn_diff(` + logReached + `, s.restart_lsn), 0)::bigint
FROM pg_replication_slots s
WHERE s.slot_name ~ '^postbox_[0-9]+_[0-9]+` + OutboxSlotSuffix + `$' AND s.database = current_database() AND s.plugin = 'pgoutput'
  AND NOT EXISTS (SELECT 1 FROM pg_class c WHERE s.slot_name = 'postbox_' || s.datoid::text || '_' || c.oid::text || '` + OutboxSlotSuffix + `')`

// LogMark is a piece of the log without messages, of no outbox. The process that reads stores its position soon after it, also if nothing else follows.
// A process of an earlier version passes over it.
var LogMark = []byte{1, 0, 1}

// markLog writes a mark into the log, and returns where it is. It needs no right on any table.
var markLog = `SELECT ` + lsn(`pg_logical_emit_message(true, '`+OutboxPrefix+`' || '{messages}'::regclass::oid::text, ?::bytea)`)

// logEnd includes what is committed and not on the disk yet, as with synchronous_commit = off.
var logEnd = `SELECT ` + lsn("pg_current_wal_insert_lsn()")

// logEnds is logEnd, and up to where the log is on the disk of this server and, if standbys keep the slot, of each standby that is named for such slots. The server compares these in the
// same way before it sends the log to a reader of such a slot. A slot that is named and missing has nothing. On another server than the one whose log is read there is no row.
var logEnds = `SELECT ` + lsn("pg_current_wal_insert_lsn()") + `, ` + lsn(`LEAST(pg_current_wal_flush_lsn(), (
	SELECT CASE WHEN bool_and(s.restart_lsn IS NOT NULL) IS FALSE THEN '0/0' ELSE MIN(s.restart_lsn) END
	FROM unnest(string_to_array(NULLIF(current_setting('synchronized_standby_slots', true), ''), ',')) AS n(name)
	LEFT JOIN pg_get_replication_slots() s ON s.slot_name = btrim(n.name, ' "')
	WHERE EXISTS (SELECT 1 FROM pg_get_replication_slots() o JOIN {log_position} p ON p.slot = o.slot_name WHERE to_jsonb(o) ->> 'failover' = 'true')))`) + ` WHERE ` + ofTheServer

// claimLog keeps the reservation, unless a process of an earlier version has claimed the log after it was made. Then any message may have been published.
var claimLog = fmt.Sprintf(`
UPDATE {log_position} SET epoch = epoch + 1, reserved = CASE WHEN reserved_epoch = epoch THEN reserved ELSE %d END, reserved_epoch = epoch + 1
WHERE id = 1 RETURNING slot, position, part, epoch, reserved`, AllReserved)

// saveLogPosition returns what its session sees after it has locked the row.
const saveLogPosition = `
UPDATE {log_position} SET position = ?, part = ?, reserved = ?, reserved_epoch = epoch, saved_at = {now} WHERE id = 1 AND epoch = ? AND ` + ofTheServer + ` RETURNING pg_current_snapshot()::text`

// passLog is saveLogPosition in a transaction without messages. Its commit does not wait for the disk, nor for a standby: if the server crashes right after it, the log is read again from an earlier
// position, from which the slot still keeps it, see [Statements.LogEnds]. Nothing is lost by that, and messages without rows are published again.
const passLog = `
UPDATE {log_position} SET position = ?, part = ?, reserved = ?, reserved_epoch = epoch, saved_at = {now} WHERE id = 1 AND epoch = ? AND ` + ofTheServer + ` RETURNING set_config('synchronous_commit', 'off', true)`

const reserveLog = `UPDATE {log_position} SET reserved = ?, reserved_epoch = epoch WHERE id = 1 AND epoch = ? AND ` + ofTheServer

// ofTheServer is true on the server whose log is read. A pool may lead to another one, after a failover or a restore, before the process notices the end of
// that log. The epoch is the same there, and a place of the old log would skip messages of the new one.
const ofTheServer = `? = ` + postgresStart

// setLogPosition fences every process out that reads the log. Epochs begin at the clock, so that those of a log that was removed do not come again: a
// statement of a process that had it may still be on its way.
const setLogPosition = `
INSERT INTO {log_position} AS p (id, slot, position, part, epoch, saved_at, reserved, reserved_epoch)
SELECT 1, ?::text, ?::bigint, 0, n.now, n.now, ?::bigint, n.now FROM (SELECT {now} AS now) n
ON CONFLICT (id) DO UPDATE SET slot = EXCLUDED.slot, position = EXCLUDED.position, part = 0, epoch = GREATEST(p.epoch + 1, EXCLUDED.epoch), saved_at = EXCLUDED.saved_at,
	reserved = EXCLUDED.reserved, reserved_epoch = GREATEST(p.epoch + 1, EXCLUDED.epoch)`

// logAhead tells before messages of the log are published without rows what its session sees, the time, who may publish, and what
// operators have said of the outbox: its id (0: it is not registered), its settings, whether it is paused, whether keys are, and the paused topics as JSON. The last column has the keys with rows that are
// to be published first, as JSON: those of the given hashes that have a message which waits for another attempt, and the keys of the messages that are
// ready, in all lanes, up to a limit, null for each one that has none. One snapshot sees all of this, also a message that moves from one table to the other.
// The keys are read along the index {prefix}waiting_retrying and the primary key, with any statistics.
const logAhead = `
SELECT pg_current_snapshot()::text, {now}, CASE WHEN ` + ofTheServer + ` THEN p.epoch ELSE 0 END, COALESCE(s.id, 0), COALESCE(s.settings, ''), s.paused_at IS NOT NULL,
       EXISTS (SELECT 1 FROM {pauses} k WHERE k.spool = s.id), COALESCE((SELECT json_agg(t.topic) FROM {topic_pauses} t WHERE t.spool = s.id), '[]')::text,
       COALESCE((SELECT json_agg(r.hash) FROM (
	SELECT k.hash FROM unnest(?::bigint[]) AS k(hash)
	CROSS JOIN LATERAL (SELECT w.id FROM {waiting} w WHERE w.spool = s.id AND w.state = 2 AND w.key_hash = k.hash ORDER BY w.key_hash, w.id{along} LIMIT 1) w
	UNION ALL
	(SELECT m.key_hash FROM ONLY {messages} m WHERE m.spool = s.id AND m.state = 0 ORDER BY m.lane, m.id{along} LIMIT ?)) r), '[]')::text
FROM {log_position} p LEFT JOIN {spools} s ON s.name = ?
WHERE p.id = 1`

// LogPosition is how far the log was stored.
type LogPosition struct {
	// Position is the end of the last commit of which everything is stored, and Part the number of messages of the next
	// transaction that are stored, too.
	Position int64
	Part     int
	Epoch    int64 // fencing token
	// Server is when the server was started whose log it is: the beginning of what [Statements.LogServer] identifies it by.
	Server string
	// Reserved is the reservation: messages that were committed before this place may have been published without a row, by a process that is gone.
	Reserved int64
}

// AllReserved is the reservation if any message may have been published.
const AllReserved int64 = math.MaxInt64

// MarkLog writes a [LogMark].
func (s *Statements) MarkLog() Query { return Query{Text: s.markLog, Args: []any{LogMark}} }

// LogAhead returns what is to be known before messages of an outbox with these keys are published without rows. The epoch is 0 on another server. Of the keys of ready messages it
// returns as many as the limit says.
func (s *Statements) LogAhead(server, outbox string, keys []int64, ready int) Query {
	return Query{Text: s.logAhead, Args: []any{server, pq.Int64Array(keys), ready, outbox}}
}

// SaveLogPosition stores how far the log was stored, and the reservation, unless another process has claimed the log or this is another server. It returns a snapshot.
func (s *Statements) SaveLogPosition(p LogPosition) Query {
	return Query{Text: s.saveLogPosition, Args: []any{p.Position, p.Part, p.Reserved, p.Epoch, p.Server}}
}

// LogEnds returns the end of the log of a server, and up to where it is on the disks. It returns no row on another server.
func (s *Statements) LogEnds(server string) Query { return Query{Text: s.logEnds, Args: []any{server}} }

// PassLog is [Statements.SaveLogPosition] if no message was stored. A crash of the server may undo it, so nothing that cannot come again may depend on it. It returns something.
func (s *Statements) PassLog(p LogPosition) Query {
	return Query{Text: s.passLog, Args: []any{p.Position, p.Part, p.Reserved, p.Epoch, p.Server}}
}

// ReserveLog stores the reservation alone, under the same conditions.
func (s *Statements) ReserveLog(p LogPosition) Query {
	return Query{Text: s.reserveLog, Args: []any{p.Reserved, p.Epoch, p.Server}}
}

// SetLogPosition makes a slot that of the outboxes. Messages before the position are not read.
func (s *Statements) SetLogPosition(slot string, position, reserved int64) Query {
	return Query{Text: s.setLogPosition, Args: []any{slot, position, reserved}}
}

// PublishFor returns the statements that make the publication of a slot, or make one complete that exists, and sends inserts alone or not. A slot must have a publication, also for messages that
// belong to no table. That of the messages in the log alone tells of rows: where columns can be chosen, with one number of each. It publishes
// inserts alone before it has such a table, since updates and deletes need columns that it does not send. To add a table waits for transactions that have published, and makes publishers wait behind it, so it waits for half a
// second only.
func (s *Statements) PublishFor(slot string, exists, inserts bool, lacks []string, columns bool) []string {
	names := make([]string, len(lacks))
	for i, table := range lacks {
		names[i] = "ONLY " + s.Names.Table(table)
		switch {
		case columns && table == "audit":
			names[i] += " (id)"
		case columns:
			names[i] += " (spool)"
		}
	}
	tables := strings.Join(names, ", ")
	if !exists {
		return []string{fmt.Sprintf("CREATE PUBLICATION %s FOR TABLE %s WITH (publish = 'insert')", slot, tables)}
	}
	complete := []string{waitBriefly}
	if !inserts {
		complete = append(complete, s.PublishInserts(slot)) // after which the publication is not trusted
	}
	if len(lacks) > 0 {
		complete = append(complete, fmt.Sprintf("ALTER PUBLICATION %s ADD TABLE %s", slot, tables))
	}
	return complete
}

// CreateOutboxSlot returns the statement that makes a permanent slot. It returns the position at which the slot begins.
// failover needs version 17.
func (s *Statements) CreateOutboxSlot(name string, failover bool) string {
	options := ""
	if failover {
		options = ", failover => true"
	}
	return fmt.Sprintf("SELECT %s FROM pg_create_logical_replication_slot('%s', 'pgoutput'%s)", lsn("lsn"), name, options)
}

// DropOutboxSlot returns the statement that drops a slot.
func (s *Statements) DropOutboxSlot(name string) string {
	return fmt.Sprintf("SELECT pg_drop_replication_slot('%s')", name)
}

// CopySlot returns the statement that makes a slot which reads the same log, and ends with its session. A process may read from the other one.
func (s *Statements) CopySlot(slot, name string) string {
	return fmt.Sprintf("SELECT slot_name FROM pg_copy_logical_replication_slot('%s', '%s', true)", slot, name)
}

// UnreadMessages returns the statement that looks for messages that belong to a table of messages and were not confirmed, through a slot and the
// publication of an outbox. It returns 0 if there are none. A [LogMark] has none, and no piece with a message is as short.
func (s *Statements) UnreadMessages(slot, publication string, table uint32) string {
	const before, after = 1 + 1 + 8, 1 + 4 // the kind, flags and the place; the end of the prefix and the length of the piece
	prefix := fmt.Sprintf("%s%d", OutboxPrefix, table)
	return fmt.Sprintf(`SELECT COUNT(*) FROM pg_logical_slot_peek_binary_changes('%s', NULL, NULL, 'proto_version', '1', 'publication_names', '%s', 'messages', 'true')
WHERE substring(data, 1, 1) = 'M' AND position('%s\000'::bytea IN data) = %d AND length(data) > %d`, slot, publication, prefix, before+1, before+len(prefix)+after+len(LogMark))
}

// StartOutboxReplication returns the command that sends the messages of the log from a slot.
func (s *Statements) StartOutboxReplication(slot string) string {
	return fmt.Sprintf("START_REPLICATION SLOT %s LOGICAL 0/0 (proto_version '1', publication_names '%s', messages 'true')", slot, slot)
}

// usePostgresLog sets the statements.
func (s *Statements) usePostgresLog() {
	s.logSnapshot, s.waitingKeys, s.LogServer, s.Publication, s.Retained = logSnapshot, waitingKeys, logServer, publication, retained
	s.idleLook, s.ToldTables = idleLook, toldTables
	s.WalLevel = `SELECT current_setting('wal_level')`
	s.PublishedCount = `SELECT COUNT(*) FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid WHERE p.pubname = ?`
	s.SlotTaken = slotTaken
	s.LogServerState, s.LogSlotState, s.PublicationRights, s.PublicationOwner = logServerState, logSlotState, publicationRights, publicationOwner
	s.oldestTransaction, s.publicationUser, s.setUpHolder = oldestTransaction, publicationUser, setUpHolder
	s.emit, s.emitChecked, s.markLog, s.OutboxSlot, s.OrphanedSlots, s.LogEnd, s.logEnds = emit, emitChecked, markLog, outboxSlot, orphanedSlots, logEnd, logEnds
	s.ClaimLog, s.saveLogPosition, s.passLog, s.reserveLog, s.setLogPosition = claimLog, saveLogPosition, passLog, reserveLog, setLogPosition
	s.PublicationTrust, s.OpenTransactions, s.NewTransaction = publicationTrust, openTransactions, newTransaction
	s.ReaderSchema, s.OwnLogRights, s.ReadersLogRights = readerSchema, ownLogRights, readersLogRights
	s.logAhead = logAhead
	s.LogPosition = `SELECT slot, position, part, epoch, saved_at FROM {log_position} WHERE id = 1`
	s.RemoveLogPosition = `DELETE FROM {log_position}`
}
