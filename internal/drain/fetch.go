package drain

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/tail"
)

// page is the result of one fetch.
type page struct {
	messages []*spool.Message
	perLane  map[int]int   // number of ready messages in each lane
	last     map[int]int64 // highest id of the ready messages in each lane
	waited   int           // number of messages whose time has come
	newest   int64
	meta
}

// meta is what the last row of a fetch tells, which belongs to no message.
type meta struct {
	// the running transactions of the read's snapshot, the lowest of them, the transaction of a
	// mark, and the highest id given: see watermark
	running             []int64
	lowest, next, given int64
	stored              int64          // highest id that was found when a mark was looked for
	seen                *tail.Snapshot // the snapshot itself, if the database tells it
	free, members       int            // lanes that no process holds, and live members
	version             int64          // version of the operators' settings
	whole               bool           // this row was read
	unfit               string         // why this session cannot be used
	incarnation         string         // identifies the instance of the database
	now                 time.Time      // by the database's clock
}

// fetch reads the lanes.
func (r *reader) fetch(ctx context.Context, params dialect.FetchParams) (found *page, err error) {
	defer func() { r.heard(err) }()
	query := r.spool.Statements.Fetch(params)
	asked := time.Now()
	rows, err := r.prepared.Query(ctx, r.db, query)
	r.keepReads(query.Text) // the statement may have been prepared before it failed
	if err != nil {
		return nil, fmt.Errorf("fetch from spool %q: %w", r.spool.Name(), err)
	}
	defer func() { _ = rows.Close() }()
	if found, err = readPage(rows, r.lanes, params.Unordered); err != nil {
		return nil, fmt.Errorf("fetch from spool %q: %w", r.spool.Name(), err)
	}
	r.databaseAhead = found.now.Sub(asked) // on all databases but PostgreSQL the time is that of the statement's start
	return found, r.checkSession(ctx, found.unfit)
}

// readPage reads all rows of a fetch.
func readPage(rows *sql.Rows, lanes *laneSet, unordered bool) (*page, error) {
	found := &page{perLane: map[int]int{}, last: map[int]int64{}}
	scanner := newRowScanner()
	for rows.Next() {
		if err := rows.Scan(scanner.columns...); err != nil {
			return nil, err
		}
		if err := found.add(scanner, lanes, unordered); err != nil {
			return nil, err
		}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if !found.whole {
		return nil, errCutShort
	}
	return found, nil
}

// errCutShort is returned if the result has no meta row at its end. Without this error, a truncated
// page would look like a database that went back.
var errCutShort = errors.New("the result of the read ended before its last row: check the software between Postbox and its database, such as a pooler")

// checkSession returns [dialect.ErrUnfit] if the session of a read cannot be used, and makes the
// next read use another session.
func (r *reader) checkSession(ctx context.Context, unfit string) error {
	err := r.spool.Statements.CheckReason(unfit)
	if err == nil {
		return nil
	}
	return cmp.Or(r.spool.Statements.CheckSessions(ctx, r.db), err)
}

// readsPrepared is the number of reads that a drainer keeps prepared. On MySQL and MariaDB the text
// of a read depends on the number of lanes it reads, so there may be hundreds of texts. A server
// limits the number of prepared statements of all its connections together.
const readsPrepared = 16

// keepReads records that a read was used. If too many reads are prepared, it closes the least
// recently used one.
func (r *reader) keepReads(used string) {
	r.reads = append(slices.DeleteFunc(r.reads, func(read string) bool { return read == used }), used)
	if len(r.reads) > readsPrepared {
		r.prepared.Drop(r.reads[0])
		r.reads = slices.Delete(r.reads, 0, 1)
	}
}

// add adds a row to the page.
func (p *page) add(row *rowScanner, lanes *laneSet, unordered bool) error {
	if row.state == dialect.StateMeta {
		p.whole = true
		p.lowest, p.next, p.given, p.free, p.members = row.id, row.hash.Int64, row.size, int(row.lane), int(row.attempts)
		p.version, p.now, p.incarnation = row.starts, time.UnixMicro(row.createdAt), string(row.topic)
		p.unfit = string(row.key)
		var err error
		if p.seen, p.running, err = row.snapshot(); err == nil {
			p.stored, err = row.stored()
		}
		return err
	}
	lane := lanes.held[int(row.lane)]
	if lane == nil {
		return fmt.Errorf("the database returned a message of lane %d, which was not requested", row.lane)
	}
	p.count(row.message(lane, unordered))
	return nil
}

// count adds a message to the counts of the page.
func (p *page) count(m *spool.Message) {
	if m.Ref.State == dialect.StateReady {
		p.perLane[m.Ref.Lane]++
		p.last[m.Ref.Lane] = max(p.last[m.Ref.Lane], m.Ref.ID)
	} else {
		p.waited++
	}
	p.newest = max(p.newest, m.Ref.ID)
	p.messages = append(p.messages, m)
}

// complete returns the id up to which a read has all ready messages of a lane, and whether the lane
// may have more beyond it.
func (p *page) complete(of dialect.Cursor, params dialect.FetchParams) (upTo int64, more bool) {
	switch {
	case params.UpTo > 0:
		return params.UpTo, p.given > params.UpTo
	case p.perLane[of.Lane] >= params.PerLane:
		return p.last[of.Lane], true
	case of.UpTo > 0:
		return of.UpTo, true
	}
	return math.MaxInt64, false
}

// dueTurn is true if it was the turn of scheduled messages, see trimDue.
type dueTurn bool

// trimDue removes due messages from the page if there are more than the read asked for, since
// a database may return as many of each state. Both states keep half, or what the other leaves. A
// later read returns the others again. Of an odd number, one more is of the state whose turn it is:
// if a read asks for a single message, and messages that fail are due again and again, scheduled
// ones would never be read otherwise.
func (p *page) trimDue(params dialect.FetchParams, turn *dueTurn) {
	if p.waited <= params.Due {
		return
	}
	half := params.Due / 2
	if *turn = !*turn; *turn {
		half = (params.Due + 1) / 2
	}
	scheduled := 0
	for _, m := range p.messages {
		if m.Ref.State == dialect.StateScheduled {
			scheduled++
		}
	}
	retrying := p.waited - scheduled
	scheduled = min(scheduled, max(half, params.Due-retrying))
	left := map[int]int{dialect.StateScheduled: scheduled, dialect.StateRetrying: params.Due - scheduled}
	p.messages = slices.DeleteFunc(p.messages, func(m *spool.Message) bool {
		if m.Ref.State == dialect.StateReady {
			return false
		}
		left[m.Ref.State]--
		return left[m.Ref.State] < 0
	})
	p.waited = params.Due
}

// trimEarly removes due scheduled messages from the page if older messages of their lane, which
// may have the same key, have not all been read. Scheduled messages are read separately from the
// others, so a later read returns them again. They do not wait for messages of a later scheduled
// time of batches, before which the lane ends.
func (r *reader) trimEarly(params dialect.FetchParams, p *page) {
	cursors := make(map[int]dialect.Cursor, len(params.Cursors))
	for _, c := range params.Cursors {
		cursors[c.Lane] = c
	}
	p.messages = slices.DeleteFunc(p.messages, func(m *spool.Message) bool {
		upTo, _ := p.complete(cursors[m.Ref.Lane], params)
		if l := r.lanes.held[m.Ref.Lane]; l.endsBefore > 0 && upTo >= l.endsBefore-1 {
			upTo = math.MaxInt64
		}
		return m.Ref.State == dialect.StateScheduled && m.HasKey && upTo < m.Ref.ID
	})
}

// Reload reads a message again that a handler has had, and may have changed. It reports false if
// the message is gone.
func (c *core) Reload(ctx context.Context, m *spool.Message) (bool, error) {
	return c.loadPayload(ctx, c.db, m)
}

// rowQuerier reads one row: a *sql.DB or a *sql.Tx.
type rowQuerier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// loadPayload reads a payload that fetch left out because of its size, or that has been unloaded
// since. It reports false if the message is gone.
func (c *core) loadPayload(ctx context.Context, db rowQuerier, m *spool.Message) (bool, error) {
	var payload spool.Payload
	var metadata []byte
	query := c.spool.Statements.LoadPayload(c.id.Load(), m.Ref)
	err := db.QueryRowContext(ctx, query.Text, query.Args...).Scan(&payload, &metadata)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("load message %d: %w", m.Ref.ID, err)
	}
	m.Decode(payload, metadata)
	return true, nil
}
