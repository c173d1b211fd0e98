package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/lib/pq"
)

// rowsOfLog makes a table with the messages of [LogOutbox] that have ever got a row. The others were published straight from the log.
const rowsOfLog = `
	CREATE TABLE torture_rows (message_id bytea NOT NULL);
	CREATE FUNCTION torture_note_row() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF EXISTS (SELECT 1 FROM postbox_spools WHERE id = NEW.spool AND name = '` + LogOutbox + `') THEN
			INSERT INTO torture_rows VALUES (NEW.message_id);
		END IF;
		RETURN NULL;
	END $$;
	CREATE TRIGGER torture_note_row AFTER INSERT ON postbox_messages FOR EACH ROW EXECUTE FUNCTION torture_note_row();
	CREATE TRIGGER torture_note_row AFTER INSERT ON postbox_waiting FOR EACH ROW EXECUTE FUNCTION torture_note_row();`

// Logged returns the messages of [LogOutbox] that are committed, and a place in the log after all of them.
func Logged(ctx context.Context, db *sql.DB) (logged map[string]bool, end int64, err error) {
	ids, err := messages(ctx, db, "SELECT message_id FROM torture_intents WHERE message_id LIKE '"+logPrefix+"%'")
	if err != nil {
		return nil, 0, err
	}
	logged = make(map[string]bool, len(ids))
	for _, id := range ids {
		logged[id] = true
	}
	err = db.QueryRowContext(ctx, "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint").Scan(&end)
	return logged, end, err
}

// LogRead returns the place in the log up to which all messages have been published or have rows.
func LogRead(ctx context.Context, db *sql.DB) (position int64, err error) {
	err = db.QueryRowContext(ctx, "SELECT position FROM postbox_log_position").Scan(&position)
	return position, err
}

// DropSlot ends the reader of [LogOutbox] and drops its slot. It reports false if another reader was quicker.
func DropSlot(ctx context.Context, db *sql.DB) (dropped bool, err error) {
	const slots = " FROM pg_replication_slots WHERE database = current_database() AND NOT temporary"
	if _, err := db.ExecContext(ctx, "SELECT pg_terminate_backend(active_pid)"+slots); err != nil {
		return false, fmt.Errorf("end the reader of the slot: %w", err)
	}
	_, err = db.ExecContext(ctx, "SELECT pg_drop_replication_slot(slot_name)"+slots)
	if inUse := (*pq.Error)(nil); errors.As(err, &inUse) && inUse.Code == "55006" {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("drop the slot: %w", err)
	}
	return true, nil
}
