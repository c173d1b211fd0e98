package pgtail

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/tail"
)

// slotState is the permanent slot of the outboxes in one set of tables.
type slotState struct {
	name      string
	exists    bool
	active    bool  // a process reads from it
	invalid   bool  // the server has removed log that it needs, or it is foreign
	foreign   bool  // another program has made it
	confirmed int64 // the position up to which the server need not keep the log
}

// findSlot returns the slot if this process may try to read from it.
func findSlot(ctx context.Context, outbox tail.Outbox) (slot slotState, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	slot, err = readSlot(ctx, outbox.DB, outbox.Statements)
	switch {
	case err != nil:
		return slot, err
	case !slot.exists || slot.invalid:
		if _, err := slot.claim(ctx, outbox); err != nil { // a standby cannot do that, and need not have the slot
			return slot, err
		}
		return slot, slot.unusable()
	case slot.active:
		return slot, errTaken
	}
	return slot, nil
}

func readSlot(ctx context.Context, db *sql.DB, statements *dialect.Statements) (slot slotState, err error) {
	if err := db.QueryRowContext(ctx, statements.LogServer).Scan(new(string), new(string), &slot.name); err != nil {
		return slot, tableMissing(fmt.Errorf("identify the table of messages: %w", err))
	}
	slot.name += dialect.OutboxSlotSuffix
	ours := false
	err = db.QueryRowContext(ctx, statements.OutboxSlot, slot.name).Scan(&ours, &slot.active, &slot.invalid, &slot.confirmed)
	if errors.Is(err, sql.ErrNoRows) {
		return slot, nil
	}
	if err != nil {
		return slot, fmt.Errorf("look for the slot %s: %w", slot.name, err)
	}
	slot.exists, slot.foreign, slot.invalid = true, !ours, slot.invalid || !ours
	return slot, nil
}

// orphan is a slot whose tables were dropped. The server keeps its log for it until someone drops it.
type orphan struct {
	slot string
	kept int64 // bytes of log
}

func readOrphans(ctx context.Context, db *sql.DB, statements *dialect.Statements) (orphans []orphan, err error) {
	rows, err := db.QueryContext(ctx, statements.OrphanedSlots)
	if err != nil {
		return nil, fmt.Errorf("look for slots whose tables were dropped: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var o orphan
		if err := rows.Scan(&o.slot, &o.kept); err != nil {
			return nil, fmt.Errorf("look for slots whose tables were dropped: %w", err)
		}
		orphans = append(orphans, o)
	}
	return orphans, rows.Err()
}

// beginning is what a session knows when it has the log.
type beginning struct {
	position dialect.LogPosition // up to which the log was stored
	since    uint64              // see begunBefore
	told     []uint32            // see toldTables
}

// begin claims the log of a server, as a session identifies it.
func (s slotState) begin(ctx context.Context, outbox tail.Outbox, server string) (b beginning, err error) {
	if b.position, err = s.claim(ctx, outbox); err != nil {
		return b, err
	}
	b.position.Server, _, _ = strings.Cut(server, " ")
	if b.since, err = begunBefore(ctx, outbox, b.position); err != nil {
		return b, err
	}
	b.told, err = toldTables(ctx, outbox)
	return b, err
}

// claim fences other processes out, and returns up to where the log was stored.
func (s slotState) claim(ctx context.Context, outbox tail.Outbox) (position dialect.LogPosition, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var stored string
	err = outbox.DB.QueryRowContext(ctx, outbox.Statements.ClaimLog).Scan(&stored, &position.Position, &position.Part, &position.Epoch, &position.Reserved)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return position, notSetUp()
	case err != nil:
		return position, explainStore(ctx, outbox.DB, outbox.Statements, tableMissing(fmt.Errorf("claim the log: %w", err)))
	}
	return position, s.check(stored, position)
}

// check returns an error if the slot does not continue where the log was stored up to.
func (s slotState) check(stored string, position dialect.LogPosition) error {
	switch {
	case stored != s.name:
		return s.lost("the tables come from another database, where the slot was %s", stored)
	case s.exists && s.confirmed > position.Position:
		return s.lost("the slot %s was made anew or moved on by others", s.name)
	}
	return nil
}

// tableMissing says what to do if an error is that of a missing table, or of one of an earlier version.
func tableMissing(err error) error {
	switch {
	case dialect.LacksTable(err):
		return &setupError{"a table is missing", runMigrate, err}
	case dialect.LacksColumn(err):
		return &setupError{"a table is of an earlier version", runMigrate, err}
	}
	return err
}

// making reports whether the server still makes the slot.
func (s slotState) making() bool { return s.exists && !s.foreign && s.confirmed == 0 }

// unusable returns why the slot is lost if no process can read from it, or nil.
func (s slotState) unusable() error {
	switch {
	case !s.exists:
		return s.lost("the slot %s is gone", s.name)
	case s.foreign:
		return s.lost("the slot %s was made by another program", s.name)
	case s.invalid:
		return s.lost("the slot %s is invalid, since the server has removed log that it needs", s.name)
	}
	return nil
}

// unreadable is the loss of what follows a place in the log at which there was no publication.
func (s slotState) unreadable() error {
	return s.lost("the publication %s was dropped or renamed, and the server cannot read what was written to its log then", s.name)
}

func (s slotState) lost(format string, args ...any) error {
	return &lostError{fmt.Sprintf(format, args...)}
}
