package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
)

// tables of the example, for SQLite and PostgreSQL. Nothing in them keeps a sale from being
// reported twice: if Postbox failed, it would show. The check on lines is the one thing that the
// report's author thought of.
const tables = `
	CREATE TABLE IF NOT EXISTS daily_report_sales (
		id       TEXT NOT NULL PRIMARY KEY,
		currency TEXT NOT NULL,
		cents    BIGINT NOT NULL
	);
	CREATE TABLE IF NOT EXISTS daily_report_lines (
		midnight BIGINT NOT NULL,
		sale_id  TEXT NOT NULL,
		cents    BIGINT NOT NULL CHECK (cents > 0)
	);
	CREATE TABLE IF NOT EXISTS daily_report_reports (
		midnight BIGINT NOT NULL,
		currency TEXT NOT NULL,
		sales    BIGINT NOT NULL,
		cents    BIGINT NOT NULL,
		batches  BIGINT NOT NULL,
		PRIMARY KEY (midnight, currency)
	);`

// storedInQueue returns when each sale that waits was stored, by the database's clock: that decides
// at which midnight it is reported. A batch handler is not told, and after a long stop one batch
// may have sales of several days, so it looks where the queue keeps them.
func storedInQueue(ctx context.Context, tx *sql.Tx) (map[string]time.Time, error) {
	rows, err := tx.QueryContext(ctx, "SELECT message_id, created_at FROM daily_report_messages WHERE topic = $1", queueName)
	if err != nil {
		return nil, fmt.Errorf("look when sales were stored: %w", err)
	}
	defer func() { _ = rows.Close() }()
	stored := map[string]time.Time{}
	for rows.Next() {
		var id []byte
		var micros int64
		if err := rows.Scan(&id, &micros); err != nil {
			return nil, err
		}
		stored[string(id)] = time.UnixMicro(micros)
	}
	return stored, rows.Err()
}

// clocks are how to ask the databases for the time, in microseconds.
var clocks = map[postbox.Dialect]string{
	postbox.SQLite:     "SELECT CAST(unixepoch('now', 'subsec') * 1000000 AS BIGINT)",
	postbox.PostgreSQL: "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)",
}

// now returns the time by the database's clock.
func (a *app) now(ctx context.Context) (time.Time, error) {
	var micros int64
	if err := a.DB.QueryRowContext(ctx, clocks[a.Dialect]).Scan(&micros); err != nil {
		return time.Time{}, fmt.Errorf("look at the database's clock: %w", err)
	}
	return time.UnixMicro(micros), nil
}
