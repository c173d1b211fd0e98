package prove

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
)

// session is one of the server. An id may be used again, by another session or, behind a proxy, on
// another server, so only one with this mark is ended.
type session struct {
	id   int64
	mark string
}

// querier is a connection or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (c *child) session(ctx context.Context, on querier) (s session, err error) {
	if c.Dialect == postbox.MySQL { // a server, and the address of the client
		err = on.QueryRowContext(ctx, "SELECT id, CONCAT(@@hostname, ' ', host) FROM information_schema.processlist WHERE id = CONNECTION_ID()").Scan(&s.id, &s.mark)
		return s, err
	}
	// A pooler takes the name away when it gives the session to another client.
	err = on.QueryRowContext(ctx, `SELECT pid, set_config('application_name', 'postbox prove ' || backend_start::text, false)
		FROM pg_stat_activity WHERE pid = pg_backend_pid()`).Scan(&s.id, &s.mark)
	return s, err
}

// cutPatience is how long a process tries to end a session of its own.
const cutPatience = time.Second

// cut ends a session, which must be one of this process: on another connection.
func (c *child) cut(ctx context.Context, s session) {
	ctx, cancel := context.WithTimeout(ctx, cutPatience)
	defer cancel()
	conn, err := c.db.Conn(ctx)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	ended := false
	if c.Dialect == postbox.MySQL {
		err = conn.QueryRowContext(ctx, fmt.Sprintf("SELECT COUNT(*) = 1 FROM information_schema.processlist WHERE id = %d AND CONCAT(@@hostname, ' ', host) = '%s'", s.id, s.mark)).Scan(&ended)
		if err == nil && ended {
			_, err = conn.ExecContext(ctx, fmt.Sprintf("KILL %d", s.id))
		}
	} else {
		err = conn.QueryRowContext(ctx, fmt.Sprintf("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %d AND application_name = '%s'", s.id, s.mark)).Scan(&ended)
	}
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
	// cutPause is the longest pause between two sessions of a pool that are ended, and cutDelay
	// that between the choice of a session and its end: what it does then is chance.
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
