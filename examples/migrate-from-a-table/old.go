package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
)

// event is what the shop tells others. Events of one customer must stay in order.
type event struct{ id, topic, customer, body string }

// oldRow is an event in the table, under the number that the table gave to it.
type oldRow struct {
	number int64
	event
}

// oldTable is the outbox that the application has made itself, with columns of its own. A relay
// publishes rows without published_at in the order of their numbers, and then sets it.
type oldTable struct {
	dialect postbox.Dialect
	// lock makes a SELECT lock its rows. SQLite has one writer at a time, so it has no locks of
	// rows.
	lock string
	// isolation of the transactions that move rows. With the default of MySQL and MariaDB,
	// REPEATABLE READ, they would lock gaps between rows, too, and deadlock with producers.
	isolation *sql.TxOptions
}

func newOldTable(dialect postbox.Dialect) oldTable {
	t := oldTable{dialect: dialect, lock: " FOR UPDATE"}
	switch dialect {
	case postbox.MySQL:
		t.isolation = &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	case postbox.SQLite:
		t.lock = ""
	case postbox.PostgreSQL:
	}
	return t
}

// create returns the statements that create the table.
func (t oldTable) create() []string {
	number := map[postbox.Dialect]string{
		postbox.PostgreSQL: "bigserial", postbox.MySQL: "BIGINT AUTO_INCREMENT", postbox.SQLite: "INTEGER",
	}[t.dialect]
	return []string{
		`CREATE TABLE from_table_events (
			number       ` + number + ` PRIMARY KEY,
			event_id     VARCHAR(36) NOT NULL,
			event_type   VARCHAR(100) NOT NULL,
			aggregate_id VARCHAR(64) NOT NULL,
			body         TEXT NOT NULL,
			published_at TIMESTAMP NULL
		)`,
		"CREATE INDEX from_table_events_pending ON from_table_events (published_at, number)",
		"CREATE INDEX from_table_events_of_aggregate ON from_table_events (aggregate_id, published_at)",
	}
}

// insert is how producers have published so far.
func (t oldTable) insert(ctx context.Context, tx *sql.Tx, e event) error {
	_, err := tx.ExecContext(ctx, t.bind("INSERT INTO from_table_events (event_id, event_type, aggregate_id, body) VALUES (?, ?, ?, ?)"),
		e.id, e.topic, e.customer, e.body)
	return err
}

func (t oldTable) mark(ctx context.Context, by executor, number int64) error {
	_, err := by.ExecContext(ctx, t.bind("UPDATE from_table_events SET published_at = CURRENT_TIMESTAMP WHERE number = ?"), number)
	return err
}

const selectPending = "SELECT number, event_id, event_type, aggregate_id, body FROM from_table_events WHERE published_at IS NULL"

// pending returns the first rows that are not published, and locks them if it is in a transaction.
func (t oldTable) pending(ctx context.Context, by executor, limit int) ([]oldRow, error) {
	return t.rows(ctx, by, selectPending+" ORDER BY number LIMIT "+strconv.Itoa(limit))
}

// pendingOf returns and locks all rows of a customer that are not published.
func (t oldTable) pendingOf(ctx context.Context, tx *sql.Tx, customer string) ([]oldRow, error) {
	return t.rows(ctx, tx, selectPending+" AND aggregate_id = ? ORDER BY number", customer)
}

// executor is a *sql.DB or a *sql.Tx.
type executor interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func (t oldTable) rows(ctx context.Context, by executor, query string, args ...any) (list []oldRow, err error) {
	if _, ok := by.(*sql.Tx); ok {
		query += t.lock
	}
	rows, err := by.QueryContext(ctx, t.bind(query), args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var row oldRow
		if err := rows.Scan(&row.number, &row.id, &row.topic, &row.customer, &row.body); err != nil {
			return nil, err
		}
		list = append(list, row)
	}
	return list, rows.Err()
}

// bind turns the question marks of a statement into what PostgreSQL takes.
func (t oldTable) bind(query string) string {
	if t.dialect != postbox.PostgreSQL {
		return query
	}
	var bound strings.Builder
	for n, part := range strings.Split(query, "?") {
		if n > 0 {
			fmt.Fprintf(&bound, "$%d", n)
		}
		bound.WriteString(part)
	}
	return bound.String()
}

// relay is the old daemon, in one process. It publishes at least once: it may end between the two
// steps.
type relay struct {
	*worker

	killed atomic.Bool
}

func (s *shop) startRelay(ctx context.Context) *relay {
	r := &relay{}
	r.worker = start(ctx, func(ctx context.Context) error { return r.run(ctx, s) })
	return r
}

// errKilled ends the relay like a crash.
var errKilled = errors.New("the relay is killed")

// kill ends the relay when it has published a row and has not marked it.
func (r *relay) kill() error {
	r.killed.Store(true)
	if err := <-r.ended; !errors.Is(err, errKilled) {
		return err
	}
	return nil
}

// run publishes rows until ctx ends.
func (r *relay) run(ctx context.Context, s *shop) error {
	for ctx.Err() == nil {
		rows, err := s.table.pending(context.WithoutCancel(ctx), s.db, 20)
		for i := 0; err == nil && i < len(rows); i++ {
			err = r.forward(context.WithoutCancel(ctx), s, rows[i])
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(movePause):
		}
	}
	return nil
}

func (r *relay) forward(ctx context.Context, s *shop, row oldRow) error {
	msg := message.NewMessage(row.id, []byte(row.body))
	msg.Metadata.Set(postbox.MetadataOrderingKey, row.customer)
	if err := s.broker.Publish(row.topic, msg); err != nil {
		return err
	}
	if r.killed.Load() {
		return errKilled
	}
	return s.table.mark(ctx, s.db, row.number)
}
