package pgtail

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/tail"
)

// serverState is what a server has for its log.
type serverState struct {
	version            int
	level              string // wal_level
	standby            bool
	slots, usedSlots   int // max_replication_slots
	senders, connected int // max_wal_senders
}

func readServer(ctx context.Context, db *sql.DB, statements *dialect.Statements) (s serverState, err error) {
	err = db.QueryRowContext(ctx, statements.Fill(selectServer)).Scan(&s.version, &s.level, &s.standby, &s.slots, &s.usedSlots, &s.senders, &s.connected)
	if err != nil {
		return s, fmt.Errorf("look at the server: %w", err)
	}
	return s, nil
}

// lacks returns what keeps every process from reading the log through the slot.
func (s serverState) lacks(slot Slot) (lacks []Finding) {
	add := func(what, fix string) {
		lacks = append(lacks, problem(tail.AboutServer, &setupError{what: what, fix: fix}))
	}
	if s.level != "logical" {
		add("wal_level is "+s.level, setLevel)
	}
	if !slot.Exists && s.usedSlots >= s.slots {
		add(fmt.Sprintf("no slot is free: all %d of max_replication_slots are in use", s.slots),
			fmt.Sprintf("drop slots of pg_replication_slots that are not needed, or set max_replication_slots = %d and restart the server (ALTER SYSTEM SET max_replication_slots = %[1]d)", s.usedSlots+1))
	}
	if !slot.Active && s.connected >= s.senders {
		add(fmt.Sprintf("no sender is free: all %d of max_wal_senders are in use", s.senders),
			fmt.Sprintf("set max_wal_senders = %d and restart the server (ALTER SYSTEM SET max_wal_senders = %[1]d)", s.connected+1))
	}
	return lacks
}
