package prove

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
)

// session is one of the server.
type session struct {
	id    int64
	since string // of PostgreSQL, where an id is used again
}

// querier is a connection or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (c *child) session(ctx context.Context, on querier) (s session, err error) {
	query := "SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()"
	if c.Dialect == postbox.MySQL {
		query = "SELECT CONNECTION_ID(), ''"
	}
	err = on.QueryRowContext(ctx, query).Scan(&s.id, &s.since)
	return s, err
}

// cutPatience is how long a process tries to end a session of its own.
const cutPatience = time.Second

// cut ends a session, which must be one of this process: on another connection.
func (c *child) cut(ctx context.Context, s session) {
	ctx, cancel := context.WithTimeout(ctx, cutPatience)
	defer cancel()
	if c.Dialect == postbox.MySQL {
		if _, err := c.db.ExecContext(ctx, fmt.Sprintf("KILL %d", s.id)); err == nil {
			c.say(cut)
		}
		return
	}
	ended := false
	err := c.db.QueryRowContext(ctx, fmt.Sprintf("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %d AND backend_start::text = '%s'", s.id, s.since)).Scan(&ended)
	if err == nil && ended {
		c.say(cut)
	}
}

// cutOwn ends the session of a transaction, which belongs to this process until it ends, also
// behind a pooler.
func (c *child) cutOwn(ctx context.Context, tx *sql.Tx) {
	if c.Dialect == postbox.SQLite {
		return
	}
	if s, err := c.session(ctx, tx); err == nil {
		c.cut(ctx, s)
	}
}

const (
	// cutPause is the longest pause between two sessions of a pool that are ended, and cutDelay that
	// between the choice of a session and its end: what it does then is chance.
	cutPause = 2 * time.Second
	cutDelay = 30 * time.Millisecond
)

// cutIdle ends sessions of the pool, whatever they do: begin, commit, claim, or nothing.
func (c *child) cutIdle(ctx context.Context) {
	for wait(ctx, c.dice.upTo(cutPause)) {
		conn, err := c.db.Conn(ctx)
		if err != nil {
			continue
		}
		s, err := c.session(ctx, conn)
		_ = conn.Close() // it goes back to the pool
		if err == nil && wait(ctx, c.dice.upTo(cutDelay)) {
			c.cut(ctx, s)
		}
	}
}
