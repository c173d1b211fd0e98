package pgtail

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// outboxState is what an operator finds of the log for messages that are in it alone.
type outboxState struct {
	config     OutboxConfig
	db         *sql.DB
	statements *dialect.Statements
	server     serverState
	slot       slotState
	known      bool // the log was set up
	published  bool // the publication is there
	trusted    bool // and publishers rely on it
	has        contents
	doubtful   bool  // the publication is gone or not trusted, and whether the server can read its log is not known
	unreadable error // the loss of what the server cannot read, see probe
	stored     string
	position   dialect.LogPosition
	savedAt    int64 // when the position was stored, in microseconds since 1970
}

// read looks for the slot, its publication, and the position up to which the log was stored. What an earlier call has found may be gone.
func (o *outboxState) read(ctx context.Context) (err error) {
	o.known, o.trusted = false, false
	if o.slot, err = readSlot(ctx, o.db, o.statements); err != nil {
		return err
	}
	o.has, err = published(ctx, o.db, o.statements, o.slot.name)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if o.published = err == nil; o.published {
		if _, o.trusted, err = o.trust(ctx); err != nil {
			return err
		}
	}
	err = o.db.QueryRowContext(ctx, o.statements.LogPosition).Scan(&o.stored, &o.position.Position, &o.position.Part, &o.position.Epoch, &o.savedAt)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case dialect.LacksRight(err):
		table := o.statements.Names.Table("log_position")
		return &setupError{"this role may not read the table " + table, fmt.Sprintf("GRANT SELECT ON %s TO …; docs/security.md has the rights of each role", table), err}
	case err != nil:
		return tableMissing(fmt.Errorf("read the position in the log: %w", err))
	}
	o.known = true
	return nil
}

const (
	// messagesVersion is the first version of PostgreSQL that sends messages of its log, columnsVersion the first whose publications can leave columns out,
	// failoverVersion the first with slots that standbys keep, unpublishedVersion the first that reads its log without a publication.
	messagesVersion    = 14
	columnsVersion     = 15
	failoverVersion    = 17
	unpublishedVersion = 18
)

// lacks returns what keeps the log from being set up, or read, for messages.
func (o *outboxState) lacks(slot Slot) []Finding {
	lacks := o.server.lacks(slot)
	if o.server.version < messagesVersion {
		lacks = append(lacks, problem(AboutServer, &setupError{
			what: fmt.Sprintf("messages in the log need PostgreSQL %d or later, and this is %d", messagesVersion, o.server.version), fix: "update the server, or publish without PublisherConfig.Log",
		}))
	}
	if !o.known || o.server.standby { // on a standby, the slot and the row with the position are not of one moment
		return lacks
	}
	if err := o.lost(); err != nil {
		lacks = append(lacks, problem(AboutSlot, err))
	}
	return lacks
}

// lost returns [ErrSlotLost] if the slot does not continue where the log was stored up to. The log was set up.
func (o *outboxState) lost() error {
	err := o.slot.check(o.stored, o.position)
	if err == nil {
		err = o.slot.unusable()
	}
	return err
}

// probeTimeout is how long a probe may take. No forwarder can read meanwhile.
const probeTimeout = "5s"

// probe finds out whether the server can read its log for the slot. The publication may be missing there although there is one now, since it was dropped and made again. The
// probe reads what was not confirmed, and leaves it there. Without an address, or if there is too much, whether it can be read is not known.
func (o *outboxState) probe(ctx context.Context, slot Slot, address *pgconn.Config) {
	lost := o.known && o.lost() != nil
	if !o.known || lost || o.server.standby || !slot.Exists || slot.Active || slot.Incomplete {
		return
	}
	if o.published && o.trusted {
		return
	}
	if address == nil {
		o.doubtful = true
		return
	}
	switch err := o.tryRead(ctx, address); {
	case errors.Is(err, ErrSlotLost):
		o.unreadable = err
	case err != nil: // what keeps the role from reading is a finding of its own
		o.doubtful = true
	}
}

func (o *outboxState) tryRead(ctx context.Context, address *pgconn.Config) error {
	limited := address.Copy()
	limited.RuntimeParams["statement_timeout"] = probeTimeout
	s, err := connect(ctx, limited)
	if err != nil {
		return err
	}
	defer s.close(ctx)
	if err := s.identify(ctx, o.db, o.statements); err != nil {
		return err
	}
	if err := s.leadsTo(ctx, o.db, o.statements); err != nil {
		return err
	}
	_, err = (&administration{outboxState: *o, session: s}).unread(ctx, o.slot.name)
	return err
}

// dangers returns what may lose messages, or already keeps them waiting. Nothing of it keeps the log from being set up.
func (o *outboxState) dangers(slot Slot) (dangers []Finding) {
	switch {
	case !o.known:
		if err := o.unpublished(); err != nil {
			dangers = append(dangers, problem(AboutPublication, err))
		}
		return append(dangers, problem(AboutSlot, o.cutOff(slot)))
	case o.server.standby:
		if !slot.Synced || slot.temporary || o.slot.invalid {
			dangers = append(dangers, problem(AboutFailover, &setupError{
				what: "a failover to this standby loses messages, since it does not have the slot " + slot.Name,
				fix:  "on the standby, set sync_replication_slots = on, hot_standby_feedback = on, primary_slot_name, and dbname in primary_conninfo",
			}))
		}
		return dangers
	case !slot.Exists && o.published:
		return nil
	case !slot.Exists:
		return []Finding{problem(AboutPublication, &setupError{what: "there is no publication " + slot.Name, fix: `run "postbox log accept-loss", which makes it together with the slot`})}
	case slot.Incomplete:
		return []Finding{problem(AboutSlot, making(slot))}
	}
	if o.unreadable != nil {
		dangers = append(dangers, problem(AboutSlot, o.unreadable))
	} else if err := o.unpublished(); err != nil && o.lost() == nil { // a set-up refuses until the loss was accepted, which mends the publication, too
		dangers = append(dangers, problem(AboutPublication, err))
	}
	if slot.WALStatus == "unreserved" {
		dangers = append(dangers, problem(AboutSlot, &setupError{
			what: fmt.Sprintf("the slot %s has fallen behind by more than max_slot_wal_keep_size (%s), and the server may invalidate it at its next checkpoint", slot.Name, o.server.keepSize),
			fix:  "ALTER SYSTEM SET max_slot_wal_keep_size = -1; SELECT pg_reload_conf()",
		}))
	}
	if err := o.unattended(slot); err != nil {
		dangers = append(dangers, problem(AboutReader, err))
	}
	return append(dangers, o.notices(slot)...)
}

// runReader is what to do if no process reads. The server does not know of a process that cannot.
const runReader = `run a forwarder with a pgtail.Outbox in forwarder.Config.Tail (if there is one, its log, or the error of its Run, says why it does not read)`

// unattended returns an error if no process of Postbox reads from the slot.
func (o *outboxState) unattended(slot Slot) error {
	if slot.Active {
		return o.occupied(slot)
	}
	if lost := o.unreadable != nil || o.lost() != nil; lost { // no process can read until the loss was accepted, and a removal would hide it
		return nil
	}
	wrong := &setupError{
		what: fmt.Sprintf("no process reads messages from the log, and the server keeps %d bytes of it for the slot %s", slot.Retained, slot.Name),
		fix:  runReader + `, or remove the slot with "postbox log remove --without-rows"`,
	}
	if o.doubtful {
		wrong.what += ", perhaps a part without a publication, which cannot be read"
		wrong.fix = runReader + `. If the forwarder ends with pgtail.ErrSlotLost, messages are lost; "postbox log check --without-rows" tells that, too, with --log-dsn`
	}
	return wrong
}

// occupied returns an error if another program reads from the slot.
func (o *outboxState) occupied(slot Slot) error {
	if !slot.Active || slot.Incomplete || strings.HasPrefix(slot.application, dialect.LogReader) {
		return nil
	}
	return &setupError{
		what: fmt.Sprintf("the process that reads from the slot %s is none of Postbox, or of an earlier version: process %d with the application_name %q. Nothing is published while another program reads",
			slot.Name, slot.PID, slot.application),
		fix: "restart forwarders of an earlier version, or end the program: " + o.statements.EndReader(slot.Name),
	}
}

// cutOff says how far a log is set up that has no position.
func (o *outboxState) cutOff(slot Slot) error {
	switch {
	case !slot.Exists:
		return notSetUp()
	case o.slot.foreign:
		return o.foreign()
	case slot.Incomplete:
		return making(slot)
	}
	return &setupError{
		what: fmt.Sprintf("the set-up was cut off: publishers with Log can write, no process can read, and the server keeps %d bytes of log for the slot %s", slot.Retained, slot.Name),
		fix:  runSetupOutbox + `, again, or "postbox log remove --without-rows"`,
	}
}

// foreign is the error for a slot of another program.
func (o *outboxState) foreign() error {
	return &setupError{
		what: fmt.Sprintf("the slot %s was made by another program, and Postbox makes its own", o.slot.name), fix: o.statements.DropOutboxSlot(o.slot.name),
	}
}

// making is the error for a slot that the server has not made yet, perhaps for a program that has ended.
func making(slot Slot) error {
	return &setupError{
		what: makingText(slot.Name, slot.PID),
		fix:  "wait for that, and " + runSetupOutbox + `, again; "postbox log remove --without-rows --force" ends that process`,
	}
}

func makingText(slot string, pid int) string {
	return fmt.Sprintf("the slot %s is still being made: process %d of the server waits for the end of all open transactions", slot, pid)
}

// orphaned returns a finding for each slot of other tables that were dropped. The slot of tables that were restored is a loss to accept, with which it is dropped. That of a standby is the primary's.
func (o *outboxState) orphaned(ctx context.Context) (found []Finding, err error) {
	if o.server.standby {
		return nil, nil
	}
	orphans, err := readOrphans(ctx, o.db, o.statements)
	for _, left := range orphans {
		if o.known && left.slot == o.stored {
			continue
		}
		found = append(found, problem(AboutSlot, &setupError{
			what: fmt.Sprintf("the tables of the slot %s were dropped, with which messages may be lost that were in the log alone, and the server keeps %d bytes of its log for the slot, and ever more", left.slot, left.kept),
			fix:  fmt.Sprintf("%s; %s", o.statements.DropOutboxSlot(left.slot), o.statements.DropPublication(left.slot)),
		}))
	}
	return found, err
}

// retainedMost is how many bytes of log are normal. A process that reads leaves much less.
const retainedMost = 1 << 30

// notices returns what an operator may want so.
func (o *outboxState) notices(slot Slot) (notices []Finding) {
	add := func(about, what, fix string) { notices = append(notices, Finding{About: about, What: what, Fix: fix}) }
	switch missing := o.has.missing(); {
	case !o.published:
	case len(missing) > 0:
		add(AboutPublication, fmt.Sprintf("the publication %s lacks the tables %s, so a forwarder without work polls", o.slot.name, strings.Join(missing, ", ")), runSetupOutbox)
	case !o.has.inserts:
		add(AboutPublication, fmt.Sprintf("the publication %s must publish inserts alone: the server refuses statements that change or remove messages", o.slot.name), runSetupOutbox)
	}
	if slot.Active && slot.Retained > retainedMost {
		add(AboutSlot, fmt.Sprintf("the server keeps %d bytes of log for the slot %s", slot.Retained, slot.Name),
			"look for transactions that have been open for long, and for errors in the log of the process that reads")
	}
	if size := o.server.keepSize; size != "-1" {
		add(AboutServer, fmt.Sprintf("max_slot_wal_keep_size is %s: if the slot falls behind by more than that, messages are lost", size),
			"ALTER SYSTEM SET max_slot_wal_keep_size = -1; SELECT pg_reload_conf()")
	}
	if idle := o.server.idleTimeout; idle != "" && idle != "0" {
		add(AboutServer, fmt.Sprintf("idle_replication_slot_timeout is %s: if no process reads for longer, messages are lost", idle),
			"ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf()")
	}
	switch {
	case !o.server.hasStandbySlots: // then there is perhaps no standby
	case o.server.version < failoverVersion:
		add(AboutFailover, fmt.Sprintf("a failover loses the slot, since PostgreSQL %d cannot keep it", o.server.version), fmt.Sprintf("update the servers to PostgreSQL %d or later", failoverVersion))
	case !slot.Failover:
		add(AboutFailover, "a failover loses the slot, which no standby keeps", `stop the forwarders for a moment, and run pgtail.SetupOutbox, or "postbox log setup --without-rows"`)
	case o.server.standbySlots == "":
		add(AboutFailover, "synchronized_standby_slots is empty: a failover to a standby that lags loses messages, which is noticed",
			"ALTER SYSTEM SET synchronized_standby_slots = 'SLOT OF EACH STANDBY'; SELECT pg_reload_conf()")
	}
	return notices
}

// notSetUp is the error of a log that has no position.
func notSetUp() error {
	return &setupError{what: "the log is not set up for messages", fix: runSetupOutbox}
}
