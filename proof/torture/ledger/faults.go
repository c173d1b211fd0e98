package ledger

import (
	"context"
	"crypto/rand"
	"database/sql"
)

// Terminate ends some of the connections to the database, but not those of the driver, and returns
// how many.
func Terminate(ctx context.Context, db *sql.DB, share float64) (n int, err error) {
	err = db.QueryRowContext(ctx, `
		SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name <> $1 AND pid <> pg_backend_pid() AND random() < $2`,
		DriverName, share).Scan(&n)
	return n, err
}

// TerminateLog ends the connections that send the log of the database, and with them their slots.
func TerminateLog(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, `
		SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots
		WHERE database = current_database() AND active_pid IS NOT NULL`)
	return err
}

// DriverName is the application_name of the driver's connections.
const DriverName = "torture driver"

// HoldOpen begins a transaction that has a transaction id and a snapshot, and touches nothing that
// anybody needs, until release is called.
func HoldOpen(ctx context.Context, db *sql.DB) (release func(), err error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return nil, err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO torture_keys (key) VALUES ($1)", "nobody's "+rand.Text())
	if err != nil {
		_ = tx.Rollback()
		return nil, err
	}
	return func() { _ = tx.Rollback() }, nil
}

// Published returns some messages that have arrived somewhere, in no order.
func Published(ctx context.Context, db *sql.DB, number int) ([]Intent, error) {
	rows, err := db.QueryContext(ctx, `
		SELECT message_id, key, turn, topic, plan FROM torture_intents i
		WHERE EXISTS (SELECT 1 FROM torture_effects e WHERE e.message_id = i.message_id)
		ORDER BY random() LIMIT $1`, number)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var intents []Intent
	for rows.Next() {
		var i Intent
		if err := rows.Scan(&i.Message, &i.Key, &i.Turn, &i.Topic, &i.Plan); err != nil {
			return nil, err
		}
		intents = append(intents, i)
	}
	return intents, rows.Err()
}
