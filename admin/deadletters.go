package admin

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/admin/internal/audit"
	"github.com/postbox-go/watermill-postbox/admin/internal/operatorsql"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// DeadLetter is a message that is not tried again until an operator decides.
type DeadLetter struct {
	// ID identifies the dead letter. Later ones have higher ids, except in a restored database.
	ID int64
	// Consumer is the inbox's consumer that could not handle the message. It is empty for a message
	// of an outbox.
	Consumer string
	// Target is the outbox or queue in the database that the message was in. It is the zero value
	// for a message that came from a broker to an inbox: such a message is requeued through the
	// outbox that [Config.Outbox] names.
	Target Target

	// Topic and MessageID are those of the message in an outbox or a queue. Of a message of an
	// inbox they say by what its consumer knows it: InboxConfig.Topic and MessageID.
	Topic     string
	MessageID string
	// SourceTopic and UUID are those with which a message of an inbox is published again: the topic
	// that its handler subscribed to, or "" if the message did not come through a router; and the
	// UUID that it carried, or else the name that InboxConfig.WithoutID gave it, or "". Only
	// [Admin.DeadLetter] reads them. They are "" for other messages, which keep topic and id.
	SourceTopic string
	UUID        string
	// Key is the ordering key, or "" for none.
	Key string

	// CreatedAt is when the message was written to the outbox; for an inbox, when the dead letter
	// was written.
	CreatedAt time.Time
	// DiedAt is when the message became a dead letter, by the database's clock.
	DiedAt time.Time
	// Attempts is the number of attempts that failed since the message was written or last
	// requeued.
	Attempts int
	// Cause says why the message died: "attempts" if they are used up, "permanent" if its error
	// says that no retry can cure it ([postbox.Permanent], or the answer of a broker), "crash" if
	// it was handed out too often without an end, "unreadable" if it cannot be decoded, "operator"
	// if [Admin.Bury] has buried it, and "unknown" if the cause is not stored.
	Cause string
	// Error is the error of the last attempt.
	Error string
	// Shape is the error without what differs from one message to the next: see [Group.Shape].
	Shape string

	// ResolvedAt is when an operator resolved the letter, zero if it is not resolved. Resolution is
	// the operator's reason.
	ResolvedAt time.Time
	Resolution string

	// Size of payload and metadata as they are stored, in bytes.
	Size int
	// Payload and Metadata are nil in the results of [Admin.DeadLetters]; [Admin.DeadLetter] reads
	// them. Metadata stays nil if it cannot be decoded; then Error says so.
	Payload  message.Payload
	Metadata message.Metadata
	// Failures is the history, oldest first, at most the 100 latest, and as many from before a
	// requeue. Only [Admin.DeadLetter] reads it.
	Failures []Failure
}

// Failure is one failed attempt.
type Failure struct {
	// Attempt counts from 1. An entry with 0 is no attempt. Its Error says what an operator did:
	// requeue the message, resume it, so that attempts count again from there, or bury it. Or it
	// says why the message waits although no attempt is counted; such an entry is written once,
	// when the message begins to wait.
	Attempt int `json:"attempt"`
	// At is when the attempt failed, by the database's clock.
	At    time.Time `json:"at"`
	Error string    `json:"error"`
	// Process is the process that made the attempt, as host and process id.
	Process string `json:"process"`
}

// DeadLetters lists the dead letters that match the filter, in the order of their ids or with the
// newest first, and returns the cursor of the next page, which is empty after the last one.
// Payload, metadata and failures are left out, so that memory is bounded however large the dead
// letters are: see [Admin.DeadLetter].
//
// A page looks at up to 10,000 dead letters: if few of them match, it is short or empty, and the
// list goes on all the same. It costs up to three statements. DeadLetters fails with [ErrNotFound]
// if the filter names an outbox or a queue that does not exist.
func (a *Admin) DeadLetters(ctx context.Context, filter Filter) (letters []DeadLetter, next string, err error) {
	limit, err := filter.listed(deadLetters)
	after, idErr := cursor(filter.After).parseID(ofLetters)
	if err := errors.Join(err, idErr, filter.ofInbox()); err != nil {
		return nil, "", fmt.Errorf("admin: list dead letters: %w", invalid(err))
	}
	if err := a.known(ctx, filter.Target); err != nil {
		return nil, "", err
	}
	chosen := filter.ofLetters()
	chosen.Limit = limit
	switch {
	case !filter.NewestFirst:
		chosen.After = after
	case after == 1: // no id is lower
		return []DeadLetter{}, "", nil
	case after != 0:
		chosen.UpTo = after - 1
	}
	chosen.NewestFirst = filter.NewestFirst
	found, err := a.letters.Search(ctx, chosen, searchAmong)
	if err != nil {
		return nil, "", failed(err)
	}
	letters = make([]DeadLetter, len(found.Letters))
	for i, letter := range found.Letters {
		letters[i] = letter.DeadLetter
	}
	return letters, idCursor(ofLetters, found.Next), nil
}

// ofInbox refuses an inbox as the target of dead letters, and one that cannot exist.
func (f Filter) ofInbox() error {
	if f.Target.Kind == spool.KindInbox {
		return errors.New("target: to choose the letters of an inbox, set Consumer")
	}
	return f.Target.check()
}

// DeadLetter returns one dead letter with its payload, metadata and failure history, or
// [ErrNotFound].
func (a *Admin) DeadLetter(ctx context.Context, id int64) (*DeadLetter, error) {
	found, failures, err := a.letters.Get(ctx, id)
	if err != nil {
		return nil, failed(err)
	}
	found.Failures = failures
	return &found.DeadLetter, nil
}

// Again says how messages are handled again: those of dead letters by [Admin.Requeue], those of the
// history by [Admin.Replay]. With the zero value they are what they were. A field that has no
// meaning there is an [ErrInvalid].
type Again struct {
	// Topic is the topic on which a message is published again. For the dead letter of an inbox it
	// defaults to [DeadLetter.SourceTopic]; without one, the error is [ErrRefused]. Other dead
	// letters keep their topic. For a replay it defaults to the topic that a message of an outbox
	// had, and to the one from which a message of a queue or an inbox came: its metadata
	// [postbox.MetadataSourceTopic], or [Message.SourceTopic].
	Topic string

	// OlderThanClaims says that consumers that have handled a message of an inbox may handle it
	// again. Without it, a letter is refused with [ErrRefused] whose own claim has been deleted, or
	// that died a day or more after its first failure: the claims of other consumers may have
	// ended.
	OlderThanClaims bool
	// Payload replaces the payload of the one dead letter with the filter's ID; nil keeps it. An
	// empty payload that is not nil is a new payload. It needs [Config.AllowEdit].
	Payload message.Payload
	// Metadata replaces all metadata of the one dead letter with the filter's ID; nil keeps it. The
	// ordering key cannot be changed, and is added if it is missing. Metadata that cannot be
	// decoded has to be replaced. An edited message has no unique key, so the metadata of
	// unique keys is refused with [ErrInvalid]. It needs [Config.AllowEdit].
	Metadata message.Metadata

	// To is the outbox that publishes what is replayed. The zero value is for the outbox or the
	// queue itself. Messages of an inbox need one, or a queue whose handler works on them.
	To Target
	// NewIDs gives each message that is replayed a new id. With the old one, inboxes ignore a
	// message that they have handled, as long as they remember it.
	NewIDs bool
	// DryRun looks whether a replay could begin, and changes nothing.
	DryRun bool
}

// maxHistory limits the failures that are read with a message or a dead letter to the newest ones.
const maxHistory = 100

// storedLetter is a dead letter with what only the tables say of it.
type storedLetter struct {
	DeadLetter

	Origin  int // dialect.OriginSpool or dialect.OriginInbox
	Subject []byte
	SpoolID int64 // 0 for none
	// failedAt is when it failed first, or when it died; lists do not have it.
	failedAt time.Time
	// broken says why the metadata cannot be read.
	broken error
}

// letterStore contains the actions of operators on the dead letters of one set of tables. It is
// safe for concurrent use.
type letterStore struct {
	db         *sql.DB
	statements *operatorsql.Statements
	audit      *audit.Auditor
	outbox     string
	logger     watermill.LoggerAdapter

	mu     sync.Mutex
	spools map[int64]*spool.Spool // by id, so that messages without a key go to all lanes in turn
}

// newLetters returns the dead letters of a database. Dead letters of an inbox are published again
// through the outbox.
func newLetters(db *sql.DB, statements *operatorsql.Statements, audit *audit.Auditor, outbox string, logger watermill.LoggerAdapter) *letterStore {
	return &letterStore{db: db, statements: statements, audit: audit, outbox: outbox, logger: logger, spools: map[int64]*spool.Spool{}}
}

// List returns the dead letters that the filter selects, in the order of their ids, without payload
// and metadata. Each of its statements looks at a bounded number of letters, however few of them
// match.
func (l *letterStore) List(ctx context.Context, filter operatorsql.DeadLetterFilter) (letters []*storedLetter, err error) {
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
func (l *letterStore) page(ctx context.Context, filter operatorsql.DeadLetterFilter) ([]*storedLetter, error) {
	var letters []*storedLetter
	err := spool.Each(ctx, l.db, l.statements.DeadLetters(filter), func(scan spool.Scan) error {
		letter := &storedLetter{}
		letters = append(letters, letter)
		return letter.scan(scan)
	})
	if err != nil {
		return nil, spool.Wrap("list dead letters", err)
	}
	return letters, nil
}

// Get returns one dead letter with payload and metadata, and its latest failures, oldest first.
func (l *letterStore) Get(ctx context.Context, id int64) (*storedLetter, []Failure, error) {
	letter, err := l.read(ctx, l.db, id)
	if err != nil {
		return nil, nil, spool.Wrap(fmt.Sprintf("read dead letter %d", id), err)
	}
	failures, err := readFailures(ctx, l.db, l.statements, letter.Subject, requeuedSubject(letter.Target, letter.MessageID), maxHistory)
	if err != nil {
		return nil, nil, spool.Wrap(fmt.Sprintf("read failures of dead letter %d", id), err)
	}
	return letter, failures, nil
}

// Resolve marks a dead letter as dealt with.
func (l *letterStore) Resolve(ctx context.Context, id int64, reason string) error {
	act := audit.NewAct(audit.ActResolve, "").On("dead letter %d", id).Noting(reason)
	return l.change(ctx, act, id, "resolve", func(tx *sql.Tx) error {
		return l.resolve(ctx, tx, id, reason)
	})
}

func (l *letterStore) resolve(ctx context.Context, tx *sql.Tx, id int64, reason string) error {
	changed, err := spool.Affected(spool.Directly(ctx, tx, l.statements.Resolve(id, spool.ErrorText(errors.New(reason)))))
	if err == nil && changed == 0 {
		err = l.taken(ctx, tx, id)
	}
	return err
}

// change changes one dead letter in a transaction, and writes the row of the action, whose target
// is the spool of the letter, if it has one.
func (l *letterStore) change(ctx context.Context, act *audit.Act, id int64, what string, do func(tx *sql.Tx) error) error {
	act.Affected = 1
	what = fmt.Sprintf("%s dead letter %d", what, id)
	err := spool.InTx(ctx, l.db, l.statements.Statements, func(tx *sql.Tx) error {
		letter, err := l.read(ctx, tx, id)
		if err != nil {
			return err
		}
		act.Target = letter.Target.stored()
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
func (l *letterStore) Delete(ctx context.Context, id int64) error {
	act := audit.NewAct(audit.ActDelete, "").On("dead letter %d", id)
	return l.change(ctx, act, id, "delete", func(tx *sql.Tx) error {
		return l.delete(ctx, tx, id, true)
	})
}

func (l *letterStore) delete(ctx context.Context, tx *sql.Tx, id int64, resolved bool) error {
	deleted, err := spool.Affected(spool.Directly(ctx, tx, l.statements.DeleteDeadLetter(id, resolved)))
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
func (l *letterStore) read(ctx context.Context, db rowQuerier, id int64) (*storedLetter, error) {
	letter := &storedLetter{}
	var metadata, carried []byte
	var failed int64
	err := letter.scan(db.QueryRowContext(ctx, l.statements.DeadLetter, id).Scan, (*spool.Payload)(&letter.Payload), &metadata, &letter.SourceTopic, &carried, &failed)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	if letter.Origin == dialect.OriginInbox {
		letter.UUID = string(carried)
	}
	letter.failedAt = time.UnixMicro(failed)
	letter.Metadata, letter.broken = spool.DecodeMetadata(metadata)
	return letter, nil
}

// taken returns why a statement found no open dead letter with this id.
func (l *letterStore) taken(ctx context.Context, db rowQuerier, id int64) error {
	_, err := l.read(ctx, db, id)
	if err != nil {
		return err
	}
	return errResolved // it exists and is not open, and a resolved letter is never opened again
}

// requeuedSubject is the subject of what failed of a message before it was requeued: then its dead
// letter is gone, and it has another number.
func requeuedSubject(target Target, messageID string) []byte {
	sum := sha256.Sum256([]byte(target.stored() + "\x00" + messageID))
	return append([]byte{'r'}, sum[:]...)
}

// readFailures returns the latest failures of a subject, and those before a requeue if that is not
// nil, oldest first.
func readFailures(ctx context.Context, db spool.Querier, statements *operatorsql.Statements, subject, before []byte, most int) (failures []Failure, err error) {
	err = spool.Each(ctx, db, statements.Failures(subject, before, most), func(scan spool.Scan) error {
		var failure Failure
		var at int64
		err := scan(&failure.Attempt, &at, &failure.Error, &failure.Process)
		failure.At = time.UnixMicro(at)
		failures = append(failures, failure)
		return err
	})
	return failures, err
}

// scan reads the columns of the statement DeadLetters, and the columns after them into more.
func (l *storedLetter) scan(scan func(...any) error, more ...any) error {
	var (
		messageID, key    []byte
		createdAt, diedAt int64
		resolvedAt        sql.NullInt64
		resolution        sql.NullString
		cause             dialect.Cause
		target            string
	)
	targets := []any{
		&l.ID, &l.Origin, &l.Subject, &l.SpoolID, &target, &l.Consumer, &l.Topic, &messageID, &key,
		&createdAt, &diedAt, &l.Attempts, &cause, &l.Error, &resolvedAt, &resolution, &l.Size,
	}
	if err := scan(append(targets, more...)...); err != nil {
		return err
	}
	l.Target, l.Cause, l.Shape = targetOf(target), causeOf(cause), shapeOf(l.Error)
	if l.Origin != dialect.OriginInbox {
		l.Consumer = ""
	}
	l.MessageID, l.Key, l.Resolution = string(messageID), string(key), resolution.String
	l.CreatedAt, l.DiedAt = time.UnixMicro(createdAt), time.UnixMicro(diedAt)
	if resolvedAt.Valid {
		l.ResolvedAt = time.UnixMicro(resolvedAt.Int64)
	}
	return nil
}
