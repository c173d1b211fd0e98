package prove

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// server is what a report says of the server.
type server struct {
	Version  string    `json:"version"`
	Settings []setting `json:"settings"`
	// pooled: the address leads through a pooler in transaction mode.
	pooled bool
}

// setting is one that decides what a server promises.
type setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// look reads what the server is, and refuses one that a run would disturb.
func (r *run) look(ctx context.Context) error {
	switch r.place.dialect {
	case postbox.PostgreSQL:
		return r.lookAtPostgres(ctx)
	case postbox.MySQL:
		return r.lookAtMySQL(ctx)
	case postbox.SQLite:
		return r.lookAtFile(ctx)
	}
	return nil
}

const (
	replica  = "the server is a replica, or takes no writes: connect to the primary server"
	tooFew   = "the server has %d free connections for this role, and a run needs %d and leaves %d to others"
	fewRooms = 5 // connections that a run leaves to others
)

func (r *run) lookAtPostgres(ctx context.Context) error {
	db := r.place.db
	var recovering, readOnly bool
	var free int
	err := db.QueryRowContext(ctx, `SELECT pg_is_in_recovery(), current_setting('transaction_read_only')::boolean, version()`).
		Scan(&recovering, &readOnly, &r.server.Version)
	if err != nil {
		return err
	}
	if recovering || readOnly {
		return refusef(replica)
	}
	if err := r.fit(ctx); err != nil {
		return err
	}
	// Limits of -1 are none.
	err = db.QueryRowContext(ctx, `SELECT LEAST(
		current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
			- COALESCE(current_setting('reserved_connections', true)::int, 0) - (SELECT COUNT(*) FROM pg_stat_activity WHERE backend_type = 'client backend' OR backend_type IS NULL),
		(SELECT CASE WHEN rolconnlimit < 0 THEN 1000000 ELSE rolconnlimit - (SELECT COUNT(*) FROM pg_stat_activity WHERE usename = current_user) END FROM pg_roles WHERE rolname = current_user),
		(SELECT CASE WHEN datconnlimit < 0 THEN 1000000 ELSE datconnlimit - (SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database()) END FROM pg_database WHERE datname = current_database()))`).
		Scan(&free)
	if err != nil {
		return err
	}
	if err := enough(free); err != nil {
		return err
	}
	if r.server.pooled, err = isPooled(ctx, db); err != nil {
		return err
	}
	return r.settings(ctx, `SELECT name, setting FROM pg_settings WHERE name IN ('default_transaction_isolation', 'fsync', 'full_page_writes', 'synchronous_commit',
		'max_connections', 'idle_in_transaction_session_timeout', 'statement_timeout') ORDER BY name`)
}

func enough(free int) error {
	if needed := connections(); free < needed+fewRooms {
		return refusef(tooFew, free, needed, fewRooms)
	}
	return nil
}

// fit refuses what Postbox refuses.
func (r *run) fit(ctx context.Context) error {
	statements, err := dialect.For(dialect.Kind(r.place.dialect), r.place.schema, r.place.prefix, "")
	if err == nil {
		err = statements.CheckServer(ctx, r.place.db)
	}
	if errors.Is(err, dialect.ErrUnfit) {
		return refusef("%w", err)
	}
	return err
}

// isPooled reports whether a pooler in transaction mode is between the client and the server.
// Behind one, two connections of the client may share a session of the server, or one may have two.
func isPooled(ctx context.Context, db *sql.DB) (bool, error) {
	var conns [2]*sql.Conn
	for n := range conns {
		conn, err := db.Conn(ctx)
		if err != nil {
			return false, err
		}
		defer func() { _ = conn.Close() }()
		conns[n] = conn
	}
	var first [2]int
	for _, n := range []int{0, 0, 1, 1, 0} {
		var pid int
		if err := conns[n].QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
			return false, err
		}
		if first[n] != 0 && first[n] != pid {
			return true, nil
		}
		first[n] = pid
	}
	return first[0] == first[1], nil
}

func (r *run) lookAtMySQL(ctx context.Context) error {
	db := r.place.db
	var readOnly bool
	var free int
	var name sql.NullString
	err := db.QueryRowContext(ctx, "SELECT CONCAT(@@version_comment, ' ', VERSION()), @@read_only, database()").Scan(&r.server.Version, &readOnly, &name)
	if err != nil {
		return err
	}
	if !name.Valid {
		return refusef("the address names no database")
	}
	if readOnly || r.replicates(ctx) {
		return refusef(replica)
	}
	if err := r.fit(ctx); err != nil {
		return err
	}
	err = db.QueryRowContext(ctx, "SELECT LEAST(@@max_connections - (SELECT COUNT(*) FROM information_schema.processlist), IF(@@max_user_connections > 0, @@max_user_connections - (SELECT COUNT(*) FROM information_schema.processlist WHERE user = SUBSTRING_INDEX(USER(), '@', 1)), 1000000))").Scan(&free)
	if err != nil {
		return err
	}
	var status, threads string // processlist has the sessions of others only with a right
	if db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Threads_connected'").Scan(&status, &threads) == nil {
		var most, connected int
		if _, err := fmt.Sscan(threads, &connected); err == nil && db.QueryRowContext(ctx, "SELECT @@max_connections").Scan(&most) == nil {
			free = min(free, most-connected)
		}
	}
	if err := enough(free); err != nil {
		return err
	}
	return r.settings(ctx, `SHOW VARIABLES WHERE Variable_name IN ('transaction_isolation', 'tx_isolation', 'innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin',
		'max_connections', 'max_allowed_packet', 'innodb_lock_wait_timeout', 'wsrep_on')`)
}

// replicates says whether the server is a replica, if this user may know it: what is written to one
// breaks its replication.
func (r *run) replicates(ctx context.Context) bool {
	for _, statement := range []string{"SHOW REPLICA STATUS", "SHOW SLAVE STATUS"} {
		if found, err := r.anyRow(ctx, statement); err == nil {
			return found
		}
	}
	return false
}

func (r *run) anyRow(ctx context.Context, query string) (bool, error) {
	rows, err := r.place.db.QueryContext(ctx, query)
	if err != nil {
		return false, err
	}
	defer func() { _ = rows.Close() }()
	return rows.Next(), rows.Err()
}

// lookAtFile makes the folder and the file of SQLite.
func (r *run) lookAtFile(ctx context.Context) error {
	p := r.place
	if err := os.Mkdir(p.folder, 0o700); err != nil {
		return refusef("a folder beside the file cannot be made: %w", err)
	}
	p.made = true
	var err error
	if p.db, err = r.Open(p.dsn); err == nil {
		p.db.SetMaxOpenConns(1)
		err = p.db.QueryRowContext(ctx, "SELECT 'SQLite ' || sqlite_version()").Scan(&r.server.Version)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(p.folder))
	}
	for _, name := range []string{"journal_mode", "synchronous", "busy_timeout"} {
		var value string
		if err := p.db.QueryRowContext(ctx, "PRAGMA "+name).Scan(&value); err != nil {
			return err
		}
		r.server.Settings = append(r.server.Settings, setting{name, value})
	}
	return nil
}

func (r *run) settings(ctx context.Context, query string) error {
	rows, err := r.place.db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var s setting
		if err := rows.Scan(&s.Name, &s.Value); err != nil {
			return err
		}
		r.server.Settings = append(r.server.Settings, s)
	}
	return rows.Err()
}

// samePooler refuses a pooler that leads to another database.
func (r *run) samePooler(ctx context.Context) error {
	if r.PoolerDSN == "" {
		return nil
	}
	db, err := OpenPooled(r.Open, r.PoolerDSN)
	if err != nil {
		return fmt.Errorf("open the database through the pooler: %w", err)
	}
	defer func() { _ = db.Close() }()
	var n int
	err = db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+r.place.table("run")).Scan(&n)
	if dialect.LacksTable(err) {
		return refusef("--through-pooler leads to another database than --dsn, or to another schema")
	}
	if err != nil {
		return fmt.Errorf("connect through the pooler: %w", dialect.HideAddress(err))
	}
	return nil
}
