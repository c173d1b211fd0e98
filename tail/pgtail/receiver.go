package pgtail

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/tail"
)

const (
	// retryMin and retryMax bound the pause between two tries to read the log; the pause doubles.
	retryMin = 100 * time.Millisecond
	retryMax = 10 * time.Second
	// standbyPause is the pause between two tries to take over from another process.
	standbyPause = time.Second
	// retainedPause is the pause after a slot was given up because of the log that the server kept
	// for it.
	retainedPause = time.Minute
)

// receiver reads the log, again and again, until its context ends.
type receiver struct {
	group *group
	// session reads the log until it fails.
	session func(ctx context.Context, outbox tail.Outbox, started func(slot string)) error
	// final reports whether an error ends all followers.
	final func(err error) bool
	pause time.Duration
	// told is the state that was logged last, and lacks what was missing then.
	told  state
	lacks string
}

// state is what a receiver does, as its log lines tell it.
type state int

const (
	starting state = iota
	reading
	standby
	failing
)

func (r *receiver) run(ctx context.Context) {
	for ctx.Err() == nil {
		outbox, ok := r.group.outbox()
		if !ok {
			return
		}
		err := r.session(ctx, outbox, func(slot string) { r.started(outbox, slot) })
		if ctx.Err() != nil {
			return
		}
		if r.final(err) {
			r.group.fail(err)
			return
		}
		r.report(outbox, err)
		timer := time.NewTimer(r.nextPause(err))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// started takes in that a session reads the log.
func (r *receiver) started(outbox tail.Outbox, slot string) {
	r.told, r.pause = reading, 0
	outbox.Logger.Info("Postbox reads the log of its database", watermill.LogFields{"slot": slot})
}

// nextPause returns how long to wait after a session ended with this error.
func (r *receiver) nextPause(err error) time.Duration {
	switch {
	case errors.Is(err, errTaken):
		r.pause = 0
		return standbyPause
	case errors.Is(err, errRetained):
		return retainedPause
	}
	r.pause = min(max(2*r.pause, retryMin), retryMax)
	return r.pause
}

// report logs the end of a session, once for each change of the state and for each thing that is
// missing.
func (r *receiver) report(outbox tail.Outbox, err error) {
	before, lacks := r.told, ""
	if wrong := (*setupError)(nil); errors.As(err, &wrong) {
		lacks = wrong.what
	}
	switch {
	case errors.Is(err, errTaken):
		if r.told = standby; before != standby {
			outbox.Logger.Info("Postbox polls: another process reads the log, and this one stands by to take over", nil)
		}
	case before == failing && (lacks == "" || lacks == r.lacks):
		outbox.Logger.Debug("Postbox still cannot read the log, and continues to poll: "+dialect.HideAddress(err).Error(), nil)
	default:
		r.told, r.lacks = failing, lacks
		outbox.Logger.Error("Postbox cannot read the log of its database and goes on trying: until it can, it finds messages by polling", dialect.HideAddress(err), nil)
	}
}

// cause returns why a context was cancelled, or else the error.
func cause(ctx context.Context, err error) error {
	if reason := context.Cause(ctx); reason != nil {
		return reason
	}
	return err
}

const (
	// connectTimeout bounds the time to connect.
	connectTimeout = 10 * time.Second
	// statementTimeout bounds statements beside the log.
	statementTimeout = 10 * time.Second
	// senderTimeout is after how long the server ends a connection whose process is gone without a
	// word. Then another process can take over.
	senderTimeout = "10s"
	// applicationName is how that of the session begins.
	applicationName = "postbox log reader"
)

// session is a connection over which the log is sent.
type session struct {
	place

	conn    *pgconn.PgConn
	role    string
	reached atomic.Uint64 // see stream
}

// place is a server and the tables of Postbox there.
type place struct {
	server string
	slot   string    // the name of the slot for these tables
	table  uint32    // of messages
	told   [3]uint32 // the tables whose rows tell that something has changed
}

// columns returns where the result of LogServer goes.
func (p *place) columns() []any {
	return []any{&p.server, &p.slot, &p.table, &p.told[0], &p.told[1], &p.told[2]}
}

// identify learns the place to which a database of a forwarder leads.
func identify(ctx context.Context, db *sql.DB, statements *dialect.Statements) (here place, err error) {
	if err := db.QueryRowContext(ctx, statements.Fill(selectPlace)).Scan(here.columns()...); err != nil {
		return here, fmt.Errorf("identify the server of the forwarder: %w", err)
	}
	return here, nil
}

// connectTo connects to the server of an outbox.
func connectTo(ctx context.Context, address *pgconn.Config, outbox tail.Outbox) (*session, error) {
	s, err := connect(ctx, address)
	if err != nil {
		return nil, err
	}
	if err = s.identify(ctx, outbox.DB, outbox.Statements); err == nil {
		err = s.leadsTo(ctx, outbox.DB, outbox.Statements)
	}
	if err != nil {
		s.close(ctx)
		return nil, err
	}
	return s, nil
}

func connect(ctx context.Context, address *pgconn.Config) (*session, error) {
	config := address.Copy()
	config.RuntimeParams["replication"] = "database"
	config.RuntimeParams["wal_sender_timeout"] = senderTimeout
	config.RuntimeParams["application_name"] = strings.TrimSpace(applicationName + " " + config.RuntimeParams["application_name"])
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return nil, explainRole(config.User, fmt.Errorf("connect to read the log: %w", err))
	}
	s := &session{conn: conn, role: config.User}
	if _, err := s.query(ctx, waitLong); err != nil {
		s.close(ctx)
		return nil, fmt.Errorf("connect to read the log: %w", err)
	}
	return s, nil
}

func (s *session) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = s.conn.Close(ctx) // the server drops the slot in any case
}

// identify learns the place to which the session leads.
func (s *session) identify(ctx context.Context, db *sql.DB, statements *dialect.Statements) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	rows, err := s.query(ctx, statements.Fill(selectPlace))
	if err != nil {
		return s.explainTable(ctx, db, statements, fmt.Errorf("identify the server: %w", err))
	}
	columns := s.columns()
	if len(rows) != 1 || len(rows[0]) != len(columns) {
		return fmt.Errorf("identify the server: the answer is not one row of %d columns", len(columns))
	}
	s.server, s.slot = string(rows[0][0]), string(rows[0][1])
	for i, oid := range rows[0][2:] {
		if _, err := fmt.Sscan(string(oid), columns[2+i]); err != nil {
			return fmt.Errorf("identify the tables: %w", err)
		}
	}
	return nil
}

// leadsTo returns an error unless the session is on the server of the forwarder's database, and
// means the same table.
func (s *session) leadsTo(ctx context.Context, db *sql.DB, statements *dialect.Statements) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	here, err := identify(ctx, db, statements)
	switch {
	case err != nil:
		return err
	case here.server == s.server && here.slot == s.slot:
		return nil
	case here.slot != s.slot:
		return &setupError{what: "DSN leads to another database or schema than the one that the forwarder reads", fix: "give both the same database and search_path"}
	default: // the slot has the same name on a standby that was promoted
		return errOtherServer
	}
}

// errOtherServer is the error of a log that no forwarder of this process reads from.
var errOtherServer = errors.New("DSN leads to another server than the one that the forwarder reads, as it may after a failover")

// createSlot makes the slot. The server waits until all transactions have ended that are open, so
// there is no time limit.
func (s *session) createSlot(ctx context.Context) error {
	if _, err := s.query(ctx, createSlot(s.slot)); err != nil {
		return explain(fmt.Errorf("make the slot %s: %w", s.slot, err))
	}
	return nil
}

// query runs a statement or a command without arguments.
func (s *session) query(ctx context.Context, text string) ([][][]byte, error) {
	results, err := s.conn.Exec(ctx, text).ReadAll()
	if err != nil {
		return nil, err
	}
	var rows [][][]byte
	for _, result := range results {
		rows = append(rows, result.Rows...)
	}
	return rows, nil
}
