package operate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/audit"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

var (
	// ErrNotFound is returned if no spool has the name, or no message or dead letter has the id any more.
	ErrNotFound = errors.New("not found")
	// ErrLetterResolved is returned if a dead letter is already resolved.
	ErrLetterResolved = errors.New("dead letter is resolved already")
	// ErrLetterStuck is returned if a dead letter cannot be requeued as it is.
	ErrLetterStuck = errors.New("dead letter cannot be requeued")
)

// maxHistory limits the failures that are read with a message or a dead letter to the newest ones.
const maxHistory = 100

// DeadLetter is a stored dead letter.
type DeadLetter struct {
	ID        int64
	Origin    int // dialect.OriginSpool or dialect.OriginInbox
	Subject   []byte
	SpoolID   int64 // 0 for none
	Spool     string
	Consumer  string
	Topic     string
	MessageID string
	// Source and CarriedID are read only with a single letter: see [DeadLetter.address].
	Source    string
	CarriedID string
	Key       string
	CreatedAt time.Time
	DiedAt    time.Time
	Attempts  int
	Cause     dialect.Cause
	Error     string
	Shape     string // of the error

	// ResolvedAt is zero while no operator has resolved the letter.
	ResolvedAt time.Time
	Resolution string

	// Size is the size of payload and metadata in bytes.
	Size int
	// Payload and Metadata are read only with a single letter. Metadata is nil if it cannot be decoded.
	Payload  []byte
	Metadata map[string]string
	// broken is the reason why Metadata cannot be decoded.
	broken error
}

// Failure is one entry of a failure history. Attempt 0 is not an attempt. It records the action of an operator, from
// which attempts count again, or the reason why a message begins to wait without an attempt.
type Failure struct {
	Attempt int
	At      time.Time
	Error   string
	Process string
}

// Letters contains the actions of operators on the dead letters of one set of tables. It is safe for concurrent use.
type Letters struct {
	db         *sql.DB
	statements *dialect.Statements
	audit      *audit.Auditor
	outbox     string
	logger     watermill.LoggerAdapter

	mu     sync.Mutex
	spools map[int64]*spool.Spool // by id, so that messages without a key go to all lanes in turn
}

// NewLetters returns the dead letters of a database. Dead letters of an inbox are published again through the outbox.
func NewLetters(db *sql.DB, statements *dialect.Statements, audit *audit.Auditor, outbox string, logger watermill.LoggerAdapter) *Letters {
	return &Letters{db: db, statements: statements, audit: audit, outbox: outbox, logger: logger, spools: map[int64]*spool.Spool{}}
}

// List returns the dead letters that the filter selects, in the order of their ids, without payload
// and metadata. Each of its statements looks at a bounded number of letters, however few of them
// match.
func (l *Letters) List(ctx context.Context, filter dialect.DeadLetterFilter) (letters []*DeadLetter, err error) {
	for {
		found, err := l.Search(ctx, filter, maxSearched)
		if err != nil {
			return nil, err
		}
		letters = append(letters, found.Letters...)
		if filter.Limit -= len(found.Letters); filter.Limit == 0 || found.Next == 0 {
			return letters, nil
		}
		filter.After = found.Next
	}
}

// page returns a page of them, whatever the shapes of their errors.
func (l *Letters) page(ctx context.Context, filter dialect.DeadLetterFilter) ([]*DeadLetter, error) {
	query := l.statements.DeadLetters(filter)
	rows, err := l.db.QueryContext(ctx, query.Text, query.Args...)
	if err != nil {
		return nil, spool.Wrap("list dead letters", err)
	}
	defer func() { _ = rows.Close() }()
	var letters []*DeadLetter
	for rows.Next() {
		letter := &DeadLetter{}
		if err := letter.scan(rows.Scan); err != nil {
			return nil, spool.Wrap("list dead letters", err)
		}
		letters = append(letters, letter)
	}
	if err := rows.Err(); err != nil {
		return nil, spool.Wrap("list dead letters", err)
	}
	return letters, nil
}

// Get returns one dead letter with payload and metadata, and its latest failures, oldest first.
func (l *Letters) Get(ctx context.Context, id int64) (*DeadLetter, []Failure, error) {
	letter, err := l.read(ctx, l.db, id)
	if err != nil {
		return nil, nil, spool.Wrap(fmt.Sprintf("read dead letter %d", id), err)
	}
	failures, err := readFailures(ctx, l.db, l.statements, letter.Subject, maxHistory)
	if err != nil {
		return nil, nil, spool.Wrap(fmt.Sprintf("read failures of dead letter %d", id), err)
	}
	return letter, failures, nil
}

// Resolve marks a dead letter as dealt with.
func (l *Letters) Resolve(ctx context.Context, id int64, reason string) error {
	act := audit.NewAct(audit.ActResolve, "").On("dead letter %d", id).Noting(reason)
	return l.change(ctx, act, id, "resolve", func(tx *sql.Tx) error {
		return l.resolve(ctx, tx, id, reason)
	})
}

func (l *Letters) resolve(ctx context.Context, tx *sql.Tx, id int64, reason string) error {
	changed, err := spool.Affected(spool.Directly(ctx, tx, l.statements.Resolve(id, spool.ErrorText(errors.New(reason)))))
	if err == nil && changed == 0 {
		err = l.taken(ctx, tx, id)
	}
	return err
}

// change changes one dead letter in a transaction, and writes the row of the action, whose target is the spool of the letter, if it has one.
func (l *Letters) change(ctx context.Context, act *audit.Act, id int64, what string, do func(tx *sql.Tx) error) error {
	act.Affected = 1
	what = fmt.Sprintf("%s dead letter %d", what, id)
	err := spool.InTx(ctx, l.db, l.statements, func(tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, l.statements.SpoolOfLetter, id).Scan(&act.Target)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrNotFound
		}
		if err != nil {
			return err
		}
		if err := do(tx); err != nil {
			return err
		}
		return l.audit.Record(ctx, tx, act)
	})
	if err != nil {
		return spool.Wrap(what, err)
	}
	return nil
}

// Delete deletes a dead letter, resolved or not.
func (l *Letters) Delete(ctx context.Context, id int64) error {
	act := audit.NewAct(audit.ActDelete, "").On("dead letter %d", id)
	return l.change(ctx, act, id, "delete", func(tx *sql.Tx) error {
		return l.delete(ctx, tx, l.statements.DeleteDeadLetter, id)
	})
}

func (l *Letters) delete(ctx context.Context, tx *sql.Tx, statement string, id int64) error {
	deleted, err := spool.Affected(tx.ExecContext(ctx, statement, id))
	if err == nil && deleted == 0 {
		err = ErrNotFound
	}
	return err
}

// rowQuerier reads one row: a *sql.DB or a *sql.Tx.
type rowQuerier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// read returns a dead letter with payload and metadata.
func (l *Letters) read(ctx context.Context, db rowQuerier, id int64) (*DeadLetter, error) {
	letter := &DeadLetter{}
	var metadata, carried []byte
	err := letter.scan(db.QueryRowContext(ctx, l.statements.DeadLetter, id).Scan, (*spool.Payload)(&letter.Payload), &metadata, &letter.Source, &carried)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	if letter.Origin == dialect.OriginInbox {
		letter.CarriedID = string(carried)
	}
	letter.Metadata, letter.broken = spool.DecodeMetadata(metadata)
	return letter, nil
}

// taken returns why a statement found no open dead letter with this id.
func (l *Letters) taken(ctx context.Context, db rowQuerier, id int64) error {
	_, err := l.read(ctx, db, id)
	if err != nil {
		return err
	}
	return ErrLetterResolved // it exists and is not open, and a resolved letter is never opened again
}

// readFailures returns the latest failures of a subject, oldest first.
func readFailures(ctx context.Context, db spool.Querier, statements *dialect.Statements, subject []byte, most int) ([]Failure, error) {
	query := statements.Failures(subject, most)
	rows, err := db.QueryContext(ctx, query.Text, query.Args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var failures []Failure
	for rows.Next() {
		var failure Failure
		var at int64
		if err := rows.Scan(&failure.Attempt, &at, &failure.Error, &failure.Process); err != nil {
			return nil, err
		}
		failure.At = time.UnixMicro(at)
		failures = append(failures, failure)
	}
	return failures, rows.Err()
}

// scan reads the columns of the statement DeadLetters, and the columns after them into more.
func (l *DeadLetter) scan(scan func(...any) error, more ...any) error {
	var (
		messageID, key    []byte
		createdAt, diedAt int64
		resolvedAt        sql.NullInt64
		resolution        sql.NullString
	)
	targets := []any{
		&l.ID, &l.Origin, &l.Subject, &l.SpoolID, &l.Spool, &l.Consumer, &l.Topic, &messageID, &key,
		&createdAt, &diedAt, &l.Attempts, &l.Cause, &l.Error, &resolvedAt, &resolution, &l.Size,
	}
	if err := scan(append(targets, more...)...); err != nil {
		return err
	}
	l.Shape = shapeOf(l.Error)
	l.MessageID, l.Key, l.Resolution = string(messageID), string(key), resolution.String
	l.CreatedAt, l.DiedAt = time.UnixMicro(createdAt), time.UnixMicro(diedAt)
	if resolvedAt.Valid {
		l.ResolvedAt = time.UnixMicro(resolvedAt.Int64)
	}
	return nil
}
