package sources

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/takeover"
)

// transferTimeout bounds one transaction. It is far longer than one takes, and ends the wait when a
// connection hangs or another transaction locks the table.
const transferTimeout = 30 * time.Second

// transfer takes messages over from a source into a spool, page by page. Any number of transfers,
// in any number of processes, may do so for one table: one at a time works, and the others poll
// again later.
type transfer struct {
	db         *sql.DB
	statements *dialect.Statements // of the outbox
	tables     *statements         // of the source
	target     *spool.Spool
	source     watermillSQL
	decoder    decoder
	announcer  *spool.Announcer
	logger     watermill.LoggerAdapter

	// The rest belongs to the goroutine of Run.
	broken     error // the reason why the table can never be read
	checked    bool  // the table is one that can be read
	registered bool
	position   position
	limit      int           // rows in a page: fewer while they are large
	maxBytes   int           // of a page, except its last row
	more       bool          // there may be more, so read without asking first
	pause      time.Duration // between two polls that find nothing
	trouble    trouble
	held       bool // the old daemon was seen at work
}

// newTransfer returns a transfer, which does nothing until Run. The source has its defaults and is
// valid.
func newTransfer(into takeover.Outbox, source watermillSQL) *transfer {
	return &transfer{
		db: into.DB, statements: into.Statements, target: into.Spool, source: source,
		tables:    statementsFor(into.Statements, source.Table, source.OffsetsTable),
		decoder:   decoder{source: source, orderingKey: postbox.MetadataOrderingKey},
		announcer: spool.NewAnnouncer(into.Spool, into.DB, into.Logger),
		logger:    into.Logger.With(watermill.LogFields{"source": source.Table}),
		limit:     source.PageSize, maxBytes: maxPageBytes, more: true, pause: source.PollMin,
	}
}

// Run takes messages over until ctx ends; then it finishes the page under way. It waits for any
// obstacle, such as a missing table or another consumer group, and says so once. It ends if it
// cannot read this kind of table.
func (t *transfer) Run(ctx context.Context) {
	defer t.announcer.Close()
	defer func() {
		if t.broken != nil {
			t.logger.Error("Postbox cannot take over from a source, and does not try again", t.broken, nil)
		}
	}()
	live := context.WithoutCancel(ctx)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for t.broken == nil {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if ctx.Err() != nil {
			return
		}
		timer.Reset(t.step(live))
	}
}

// step takes a page over and returns the pause after it.
func (t *transfer) step(live context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(live, transferTimeout)
	defer cancel()
	moved, err := t.move(ctx)
	if errors.Is(err, errForeignTable) {
		t.broken = err
		return 0
	}
	if err != nil {
		ended := t.statements.Kind.Classify(err) == dialect.Interrupted // by the server
		if ended || ctx.Err() != nil {                                  // the page was out of time
			t.limit = max(t.limit/2, 1)
		}
		t.failed(err)
		return t.source.PollMax
	}
	t.recovered()
	switch {
	case t.more:
		t.pause = t.source.PollMin
		return 0
	case moved > 0:
		t.pause = t.source.PollMin
	default:
		t.pause = min(2*t.pause, t.source.PollMax)
	}
	return t.pause
}

// move polls, and takes a page over if there is one.
func (t *transfer) move(ctx context.Context) (moved int, err error) {
	found, err := t.peek(ctx)
	if err != nil || !found {
		return 0, err
	}
	group, err := t.group(ctx)
	if err != nil {
		return 0, err
	}
	var p *page
	err = spool.InTx(ctx, t.db, t.statements, func(tx *sql.Tx) error {
		p = &page{transfer: t, tx: tx, group: group, position: t.position} // anew for each try
		return p.run(ctx)
	})
	if err != nil {
		return 0, fmt.Errorf("take over from %s: %w", t.source.Table, err)
	}
	t.done(p)
	return len(p.rows), nil
}

// done records what was committed.
func (t *transfer) done(p *page) {
	t.more = p.cut
	t.note(p)
	if p.busy {
		return
	}
	t.position, t.limit = p.position, p.nextLimit()
	if len(p.drafts) > 0 {
		t.announcer.Announce()
	}
}

// note logs the facts about a page that an operator should know.
func (t *transfer) note(p *page) {
	if p.held && !t.held {
		t.held = true
		t.logger.Info("Postbox waits while the old daemon consumes a source", watermill.LogFields{"consumer_group": t.source.ConsumerGroup})
	}
	if p.restored {
		t.logger.Info("Postbox reset its position in a source: the database was restored, and the position was ahead of it", nil)
	}
	for _, dead := range p.dead {
		t.logger.Error("Postbox moved a row that is not a message to the dead letters", dead.err, watermill.LogFields{
			"topic": t.source.Topic, "row_uuid": string(dead.row.uuid), "row_offset": dead.row.id.Offset,
		})
	}
}

// peek asks in one statement, and without a lock, whether there are messages to take over: that is
// the whole cost of an idle transfer. It enters a source that is new.
func (t *transfer) peek(ctx context.Context) (found bool, err error) {
	if t.registered && t.more {
		return true, nil
	}
	if !t.checked {
		if err := t.checkTable(ctx); err != nil {
			return false, err
		}
		t.checked = true
	}
	var stored rowID
	query := t.tables.Peek(t.source.Table, t.position)
	err = t.db.QueryRowContext(ctx, query.Text, query.Args...).Scan(&found, &stored.Transaction, &stored.Offset)
	if errors.Is(err, sql.ErrNoRows) {
		return true, t.register(ctx)
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", t.source.Table, err)
	}
	t.registered = true
	t.position = t.position.raise(stored) // what other processes took over meanwhile need not be read again
	return found || t.more, nil
}

// register enters the source; a process that comes second finds it there.
func (t *transfer) register(ctx context.Context) error {
	if _, err := t.db.ExecContext(ctx, t.tables.register, t.source.Table); err != nil {
		return fmt.Errorf("register source %s: %w", t.source.Table, err)
	}
	t.registered, t.position = true, position{}
	return nil
}

// groupState is the state of our consumer group in the table of offsets.
type groupState int

const (
	noTable groupState = iota // no subscriber was ever there
	noGroup
	hasGroup
)

// errOtherGroups is the reason why rows must not be deleted.
var errOtherGroups = errors.New("other consumer groups read the table")

// group looks for our consumer group, and for others.
func (t *transfer) group(ctx context.Context) (groupState, error) {
	rows, err := t.db.QueryContext(ctx, t.tables.groups, t.source.ConsumerGroup)
	if err != nil {
		if dialect.LacksTable(err) {
			return noTable, nil
		}
		return noTable, fmt.Errorf("read consumer groups of %s: %w", t.source.OffsetsTable, err)
	}
	defer func() { _ = rows.Close() }()
	state := noGroup
	var others []string
	for rows.Next() {
		var name string
		var ours bool
		if err := rows.Scan(&name, &ours); err != nil {
			return noTable, fmt.Errorf("read consumer groups of %s: %w", t.source.OffsetsTable, err)
		}
		if ours {
			state = hasGroup
		} else {
			others = append(others, fmt.Sprintf("%q", name))
		}
	}
	if err := rows.Err(); err != nil {
		return noTable, fmt.Errorf("read consumer groups of %s: %w", t.source.OffsetsTable, err)
	}
	if len(others) > 0 && !t.source.IgnoreOtherGroups {
		return state, fmt.Errorf("%w: %s names %s besides %q, and Postbox would delete rows that those groups have not read: "+
			"if one is that of the daemon that Postbox replaces, set ConsumerGroup; move the others to the broker and delete their rows from that table, or set IgnoreOtherGroups",
			errOtherGroups, t.source.OffsetsTable, strings.Join(others, ", "), t.source.ConsumerGroup)
	}
	return state, nil
}

// trouble is the kind of obstacle.
type trouble int

const (
	troubleNone trouble = iota
	troubleMissing
	troubleAway
	troubleGroups
	troubleRestored
	troubleOther
)

func (t *transfer) troubleOf(err error) trouble {
	switch {
	case errors.Is(err, errOtherGroups):
		return troubleGroups
	case errors.Is(err, errRestored):
		return troubleRestored
	}
	switch t.statements.Kind.Classify(err) {
	case dialect.MissingTable:
		return troubleMissing
	case dialect.Unavailable:
		return troubleAway
	case dialect.Conflict, dialect.Interrupted, dialect.Other:
	}
	if postbox.ClassifyNetwork(err) == postbox.Outage {
		return troubleAway
	}
	return troubleOther
}

// failed logs the first error of several in a row, and forgets facts that may no longer be true:
// the database that comes back may be another one.
func (t *transfer) failed(err error) {
	t.checked, t.registered, t.more, t.position = false, false, true, position{}
	kind, err := t.troubleOf(err), dialect.HideAddress(err)
	if kind == t.trouble {
		t.logger.Debug("Postbox still cannot take over from a source: "+err.Error(), nil)
		return
	}
	t.trouble = kind
	switch kind {
	case troubleMissing:
		t.logger.Error("Postbox waits for a missing table: the first producer creates the table of a source, and postbox.Migrate creates the tables of Postbox", err, nil)
	case troubleNone, troubleAway, troubleGroups, troubleRestored, troubleOther:
		t.logger.Error("Postbox cannot take over from a source and goes on trying", err, nil)
	}
}

func (t *transfer) recovered() {
	if t.trouble != troubleNone {
		t.trouble = troubleNone
		t.logger.Info("Postbox takes over from a source again", nil)
	}
}
