package prove

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strconv"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

const (
	// planned is how many messages wait beside the few that a statement is about, and as many that
	// are not due.
	planned = 4000
	// page is how many messages a statement is about, and mostReads how many rows or entries of
	// indexes it may read for each.
	page, mostReads = 100, 10
)

// plan is how the server executes a statement.
type plan struct {
	what  string
	reads int
	whole int // of these without an index, where the server tells it
}

func (p plan) slow() bool { return p.reads > page*mostReads }

// plans looks at how the server executes statements that run all the time, beside many messages
// that wait: by an index they read a bounded number of rows. All processes have ended before.
func (r *run) plans(ctx context.Context) ([]plan, error) {
	statements, err := spool.StatementsIn(r.place.database())
	if err != nil {
		return nil, err
	}
	outbox := spool.New(statements, "plans")
	id, err := outbox.Open(ctx, r.place.db)
	if err != nil {
		return nil, err
	}
	drafts := make([]spool.Draft, 2*planned)
	for n := range drafts {
		drafts[n] = spool.Draft{Topic: topic, MessageID: strconv.Itoa(n), Key: keyName(n), Payload: []byte("{}")}
		if n >= planned {
			drafts[n].Delay = time.Hour
		}
	}
	tx, err := r.place.db.BeginTx(ctx, &sql.TxOptions{Isolation: statements.Isolation})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }() // with the messages, and what the statements do to them
	if err := outbox.AppendTo(ctx, tx, spool.Run, id, drafts); err != nil {
		return nil, err
	}
	lanes := statements.FillLanes(id) // with the token 0, as the refs below have it
	if _, err := tx.ExecContext(ctx, lanes.Text, lanes.Args...); err != nil {
		return nil, err
	}
	refs, err := firstRefs(ctx, tx, statements, id)
	if err != nil {
		return nil, err
	}
	read := make([]dialect.AsRead, len(refs))
	for n, ref := range refs {
		read[n] = dialect.AsRead{Ref: ref, MostStarts: 1}
	}
	fetch := dialect.FetchParams{Spool: id, PerLane: cmp.Or(page/dialect.Lanes, 1), Due: page}
	for lane := range dialect.Lanes {
		fetch.Cursors = append(fetch.Cursors, dialect.Cursor{Lane: lane})
	}
	var found []plan
	for _, statement := range []struct {
		what  string
		query dialect.Query
	}{
		{"the read of the next messages", statements.Fetch(fetch)},
		{"the lock of messages that are handled", statements.LockAsRead(id, read)},
		{"the removal of messages that are done", statements.Remove(id, refs)},
	} {
		p, err := r.explain(ctx, tx, statement.query)
		if err != nil {
			return nil, fmt.Errorf("the plan of %s: %w", statement.what, err)
		}
		p.what = statement.what
		found = append(found, p)
	}
	return found, nil
}

// firstRefs are the first messages of a spool.
func firstRefs(ctx context.Context, tx *sql.Tx, statements *dialect.Statements, spool int64) (refs []dialect.Ref, err error) {
	rows, err := tx.QueryContext(ctx, statements.Fill(fmt.Sprintf(
		"SELECT m.lane, m.id, m.created_at FROM {messages} m WHERE m.spool = %d AND m.state = 0 ORDER BY m.id LIMIT %d", spool, page)))
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var ref dialect.Ref
		if err := rows.Scan(&ref.Lane, &ref.ID, &ref.CreatedAt); err != nil {
			return nil, err
		}
		refs = append(refs, ref)
	}
	return refs, rows.Err()
}

// explain executes a statement, but on SQLite, and returns what it read.
func (r *run) explain(ctx context.Context, tx *sql.Tx, query dialect.Query) (plan, error) {
	if r.place.dialect == postbox.SQLite {
		p := plan{}
		explaining := dialect.Query{Text: "EXPLAIN QUERY PLAN " + query.Text, Args: query.Args}
		err := texts(ctx, tx, explaining, func(line []sql.NullString) {
			if text := line[len(line)-1].String; wholeTable.MatchString(text) {
				p.reads, p.whole = planned, planned
			}
		})
		return p, err
	}
	before, err := r.readSoFar(ctx, tx)
	if err != nil {
		return plan{}, err
	}
	if err := texts(ctx, tx, query, nil); err != nil {
		return plan{}, err
	}
	after, err := r.readSoFar(ctx, tx)
	return plan{reads: after.reads - before.reads, whole: after.whole - before.whole}, err
}

// wholeTable is SQLite's word for a read of all messages.
var wholeTable = regexp.MustCompile(`\bSCAN m\b`)

// readSoFar is what the transaction, or on MySQL its session, has read of tables that are not
// temporary. A server that does not count says 0.
func (r *run) readSoFar(ctx context.Context, tx *sql.Tx) (p plan, err error) {
	if r.place.dialect == postbox.PostgreSQL {
		err = tx.QueryRowContext(ctx, "SELECT COALESCE(SUM(seq_tup_read + COALESCE(idx_tup_fetch, 0)), 0), COALESCE(SUM(seq_tup_read), 0) FROM pg_stat_xact_user_tables").Scan(&p.reads, &p.whole)
		return p, err
	}
	query := dialect.Query{Text: "SHOW SESSION STATUS WHERE Variable_name IN ('Handler_read_key', 'Handler_read_next', 'Handler_read_prev', 'Handler_read_first', 'Handler_read_last', 'Handler_read_rnd')"}
	err = texts(ctx, tx, query, func(line []sql.NullString) {
		n, _ := strconv.Atoi(line[1].String)
		p.reads += n
	})
	return p, err
}

// texts calls a function with each row, if there is one.
func texts(ctx context.Context, tx *sql.Tx, query dialect.Query, each func([]sql.NullString)) error {
	rows, err := tx.QueryContext(ctx, query.Text, query.Args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	line, fields := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for n := range line {
		fields[n] = &line[n]
	}
	for rows.Next() {
		if each == nil {
			continue
		}
		if err := rows.Scan(fields...); err != nil {
			return err
		}
		each(line)
	}
	return rows.Err()
}
