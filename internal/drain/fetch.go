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
)

// page is what one fetch found.
type page struct {
	messages []*spool.Message
	perLane  map[int]int   // ready messages of each lane
	last     map[int]int64 // highest id of them
	waited   int           // messages that waited for their time
	newest   int64
	// transactions of the read's snapshot, the lowest one that runs, and a mark after it: see watermark
	running             []int64
	lowest, next, given int64
	// lanes that no process holds, and members that are alive
	free, members int
	version       int64     // of what operators say
	whole         bool      // the meta row, which is the last one, was read
	unfit         string    // why this session cannot be used
	incarnation   string    // of the database
	now           time.Time // by the database's clock
}

// fetch reads the lanes.
func (d *Drainer) fetch(ctx context.Context, params dialect.FetchParams) (*page, error) {
	query := d.spool.Statements.Fetch(params)
	rows, err := d.prepared.Query(ctx, d.db, query)
	d.keepReads(query.Text) // it may have been prepared before it failed
	if err != nil {
		return nil, fmt.Errorf("fetch from spool %q: %w", d.spool.Name(), err)
	}
	defer func() { _ = rows.Close() }()
	found, err := readPage(rows, d.lanes, params.Unordered)
	if err != nil {
		return nil, fmt.Errorf("fetch from spool %q: %w", d.spool.Name(), err)
	}
	return found, d.checkSession(ctx, found.unfit)
}

// readPage takes in all rows of a read.
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

// errCutShort is an error, since a page without its end would look like a database that went back.
var errCutShort = errors.New("the result of the read ended before its last row: look for what stands between Postbox and its database, such as a pooler")

// checkSession returns [dialect.ErrUnfit] if the session of a read cannot be used, and sees to it that the next read has another one.
func (d *Drainer) checkSession(ctx context.Context, unfit string) error {
	err := d.spool.Statements.CheckReason(unfit)
	if err == nil {
		return nil
	}
	return cmp.Or(d.spool.Statements.CheckSessions(ctx, d.db), err)
}

// readsPrepared is how many reads a drainer keeps prepared. On MySQL and MariaDB the text of a read depends on how many lanes it reads, and so
// there may be hundreds of texts. A server has a limit for the prepared statements of all its connections together.
const readsPrepared = 16

// keepReads notes that a read was used, and gives up the one that was used least recently if too many are prepared.
func (d *Drainer) keepReads(used string) {
	d.reads = append(slices.DeleteFunc(d.reads, func(read string) bool { return read == used }), used)
	if len(d.reads) > readsPrepared {
		d.prepared.Drop(d.reads[0])
		d.reads = slices.Delete(d.reads, 0, 1)
	}
}

// add takes in a row.
func (p *page) add(row *rowScanner, lanes *laneSet, unordered bool) error {
	if row.state == dialect.StateMeta {
		p.whole = true
		p.lowest, p.next, p.given, p.free, p.members = row.id, row.hash.Int64, row.size, int(row.lane), int(row.attempts)
		p.version, p.now, p.incarnation = row.starts, time.UnixMicro(row.createdAt), string(row.topic)
		p.unfit = string(row.key)
		var err error
		p.running, err = row.running()
		return err
	}
	lane := lanes.held[int(row.lane)]
	if lane == nil {
		return fmt.Errorf("read a message of lane %d, which was not asked for", row.lane)
	}
	p.count(row.message(lane, unordered))
	return nil
}

// count takes in a message.
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

// complete returns the id up to which a read has all that is ready of a lane, and whether there may be more beyond it.
func (p *page) complete(lane int, params dialect.FetchParams) (upTo int64, more bool) {
	switch {
	case params.UpTo > 0:
		return params.UpTo, p.given > params.UpTo
	case p.perLane[lane] >= params.PerLane:
		return p.last[lane], true
	}
	return math.MaxInt64, false
}

// leaveEarly leaves out scheduled messages that are due while older ones of their lane, which may be of their key, have
// not all been read. Being read apart from the others, they come again.
func (p *page) leaveEarly(params dialect.FetchParams) {
	p.messages = slices.DeleteFunc(p.messages, func(m *spool.Message) bool {
		upTo, _ := p.complete(m.Ref.Lane, params)
		return m.Ref.State == dialect.StateScheduled && m.HasKey && upTo < m.Ref.ID
	})
}

// Reload reads a message anew that a handler has had, and may have changed. It reports false where the message is gone.
func (d *Drainer) Reload(ctx context.Context, m *spool.Message) (bool, error) {
	return d.loadPayload(ctx, d.db, m)
}

// rowQuerier reads one row: a *sql.DB or a *sql.Tx.
type rowQuerier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// loadPayload reads what fetch left out because of its size, or what was unloaded since. It reports false where the
// message is gone.
func (d *Drainer) loadPayload(ctx context.Context, db rowQuerier, m *spool.Message) (bool, error) {
	var payload, metadata []byte
	query := d.spool.Statements.LoadPayload(d.id, m.Ref)
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
