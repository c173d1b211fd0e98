package forwarder

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/given"
	"github.com/postbox-go/watermill-postbox/internal/meter"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/txscope"
)

// Publisher writes messages to the outbox, through the transaction in each message's context. One
// long-lived Publisher serves a whole process. It makes Watermill's CQRS buses transactional, since
// they pass the context on.
//
// It is safe for concurrent use, as far as a transaction is. A call to Publish is one INSERT, or a
// few if the database's limits require it. With a transaction it waits for no other connection: the
// first call finds or registers the outbox on another one if the pool has one free, and some
// statements run beside it. After a crash the messages are there if the transaction had committed.
type Publisher struct {
	config     PublisherConfig
	db         *sql.DB
	unprepared bool
	spool      *spool.Spool
	place      *spool.Place
	finder     *spool.Finder
	prepared   *spool.Prepared
	announcer  *spool.Announcer
	meter      *meter.Spool
	announce   func() // that of the announcer: made once, since each transaction registers it
	register   sync.Once
	closed     atomic.Bool
}

// NewPublisher returns a publisher for the outbox in db. A nil logger logs nothing.
func NewPublisher(db postbox.Database, config PublisherConfig, logger watermill.LoggerAdapter) (*Publisher, error) {
	config.setDefaults()
	statements, err := spool.StatementsIn(db)
	if err := errors.Join(err, config.validate()); err != nil {
		return nil, fmt.Errorf("outbox publisher: %w", err)
	}
	if given.Nil(logger) {
		logger = watermill.NopLogger{}
	}
	outbox := spool.New(statements, config.Outbox)
	notifyThrough := db.DB
	if config.DisableNotify {
		notifyThrough = nil
	}
	announcer := spool.NewAnnouncer(outbox, notifyThrough, logger)
	return &Publisher{
		config: config, db: db.DB, unprepared: db.DisablePreparedStatements, spool: outbox, place: spool.NewPlace(db.DB, statements), finder: spool.NewFinder(outbox, db.DB),
		prepared: spool.NewPrepared(db.DB), announcer: announcer, announce: announcer.Announce, meter: meter.Of(db.Metrics, outbox.Name(), logger),
	}, nil
}

// Publish writes the messages to the outbox. They must all carry the same transaction: see
// [postbox.ContextWithTx] and [postbox.InTx]. Without a transaction it returns
// [postbox.ErrNoTransaction], unless the config allows autocommit; then the messages are committed
// together.
//
// A message without a UUID is stored under a new one. A message whose context carries a
// [postbox.Causation] is stored with it in its metadata; the message itself stays as it is. Delays
// set with Watermill's components/delay, on the message or with delay.WithContext, are applied, by
// the database's clock. A message that can never be stored, such as one whose topic or id is too
// long, is a [postbox.Permanent] error. After an error of the database the transaction must be
// rolled back.
//
// A transaction that began on another *sql.DB than that of the publisher must be in the same
// database. In each call Publish then asks, with one more statement, which database the transaction
// is in, and returns an error if that is another one.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	if len(messages) == 0 {
		return nil
	}
	if err := checkNil(topic, messages); err != nil {
		return err
	}
	ctx := messages[0].Context()
	scope := txscope.From(ctx)
	if scope.Other() != nil {
		return p.publishInOther(ctx, topic, messages)
	}
	if err := scope.Begin(); err != nil {
		return fmt.Errorf("publish to topic %.300q: %w", topic, err)
	}
	defer scope.End()
	tx, inTx := postbox.TxFromContext(ctx)
	for _, msg := range messages[1:] {
		_, err := txscope.From(msg.Context()).Live() // fails for a transaction of another library, and for one that is over
		if other, _ := postbox.TxFromContext(msg.Context()); err != nil || other != tx {
			return fmt.Errorf("publish to topic %.300q: %w", topic, errDifferent)
		}
	}
	switch {
	case inTx:
		if err := p.write(ctx, tx, topic, messages); err != nil {
			return err
		}
		if !postbox.AfterCommit(ctx, p.announce) {
			p.spool.Wake() // the commit is near: poll more often
		}
		return nil
	case p.config.AllowAutocommit:
		return p.autocommit(ctx, topic, messages)
	case scope.Over():
		return fmt.Errorf("publish to topic %.300q: %w", topic, errOver)
	default:
		return fmt.Errorf("publish to topic %.300q: %w; or set AllowAutocommit", topic, postbox.ErrNoTransaction)
	}
}

const errOver = txscope.NoTxError("the transaction that the context carried is committed: the function of InTx, or the handler of the inbox, that had it may have returned, " +
	"or this is a function of AfterCommit: publish before, or in another transaction of postbox.InTx")

var errDifferent = errors.New("the messages carry different transactions: publish them one by one; " +
	"if they share one transaction of another library, call postbox.ExecFunc once for all of them")

// PublishesInTx returns true. Inboxes and queues ask an outbox by this method whether it writes
// each message in the transaction that the message's context carries. They refuse a publisher
// without it: that would send messages of a handler whose transaction is rolled back afterwards.
// Give the method to a publisher of your own only if that is true, or if it stands in for an outbox
// in a test.
func (p *Publisher) PublishesInTx() bool { return p != nil }

// autocommit writes the messages in a transaction of their own.
func (p *Publisher) autocommit(ctx context.Context, topic string, messages []*message.Message) error {
	return spool.UntilNoConflict(spool.Conflicts(p.spool.Statements.Kind), func() error {
		return postbox.InTx(ctx, p.db, func(ctx context.Context, tx *sql.Tx) error {
			postbox.AfterCommit(ctx, p.announce)
			return p.write(ctx, tx, topic, messages)
		})
	})
}

// Announce wakes the forwarders. Call it after a commit that [postbox.InTx] did not make; without
// it the forwarders find the messages at their next poll. It does not wait.
func (p *Publisher) Announce() { p.announcer.Announce() }

// Close closes prepared statements; it leaves the database and the forwarders alone. Publish fails
// with [postbox.ErrClosed] afterwards. A router closes the publishers of its handlers, so give it a
// shared publisher in [KeepOpen]. Close can be called twice.
func (p *Publisher) Close() error {
	p.closed.Store(true)
	p.announcer.Close()
	p.finder.Close()
	p.prepared.Close()
	return nil
}

func (p *Publisher) write(ctx context.Context, db postbox.Executor, topic string, messages []*message.Message) error {
	if p.closed.Load() {
		return fmt.Errorf("publish to topic %.300q: outbox publisher: %w", topic, postbox.ErrClosed)
	}
	drafts := make([]spool.Draft, len(messages))
	for i, msg := range messages {
		draft, err := p.config.draft(topic, msg) //nolint:contextcheck // a message brings its own
		if err != nil {
			return fmt.Errorf("publish to topic %.300q: message %.60q: %w", topic, msg.UUID, postbox.Permanent(err))
		}
		drafts[i] = draft
	}
	p.register.Do(func() { p.registerApart(ctx) })
	p.finder.Look() //nolint:contextcheck // the search goes on after this call
	if err := p.prepareFor(ctx, db); err != nil {
		return fmt.Errorf("publish to topic %.300q: %w", topic, err)
	}
	skipped, err := p.store(ctx, db, drafts)
	if err != nil {
		return dialect.HintAtPooler(err)
	}
	if err := p.expect(ctx, db, topic, drafts, skipped); err != nil {
		return err
	}
	p.meter.Stored(topic, len(messages)-len(skipped))
	for _, i := range skipped {
		reportSkipped(messages[i])
	}
	return nil
}

// registerPatience bounds how long a first message may wait, since another process's transaction
// may be registering the outbox.
const registerPatience = time.Second

// registerApart registers the outbox on another connection than that of the transaction. The
// transaction would keep the new row locked until it ends, and all other publishers would wait. If
// no connection is free, as in a pool of one, or if this fails, the transaction registers the
// outbox after all. On a database with one writer, that writer is the publishing transaction
// itself.
func (p *Publisher) registerApart(ctx context.Context) {
	if p.spool.Statements.Kind.Can().OneWriter || p.exhausted() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, registerPatience)
	defer cancel()
	_, _ = p.spool.Open(ctx, p.db)
}

// exhausted reports whether the pool has no free connection.
func (p *Publisher) exhausted() bool {
	pool := p.db.Stats()
	return pool.MaxOpenConnections > 0 && pool.InUse >= pool.MaxOpenConnections
}

// run executes an insert, prepared where that is possible.
func (p *Publisher) run(ctx context.Context, db spool.Executor, query dialect.Query) error {
	_, err := p.exec(ctx, db, query)
	return err
}

// exec executes a statement, prepared where that is possible.
func (p *Publisher) exec(ctx context.Context, db spool.Executor, query dialect.Query) (sql.Result, error) {
	if tx, ok := db.(*sql.Tx); ok && !p.unprepared {
		return p.prepared.InTx(ctx, tx, query)
	}
	return db.ExecContext(ctx, query.Text, query.Args...)
}

// KeepOpen returns the publisher with a Close that does nothing. A router closes the publisher of a
// handler as soon as that handler ends, even if others still use it. If the publisher is nil,
// Publish of the result returns an error.
func KeepOpen(publisher message.Publisher) message.Publisher {
	if given.Nil(publisher) {
		publisher = noPublisher{}
	}
	return keptOpen{publisher}
}

type keptOpen struct{ message.Publisher }

// noPublisher stands for a publisher that is nil.
type noPublisher struct{}

// Publish returns an error.
func (noPublisher) Publish(topic string, _ ...*message.Message) error {
	return fmt.Errorf("publish to topic %.300q: the publisher that forwarder.KeepOpen got is nil", topic)
}

// Close does nothing.
func (noPublisher) Close() error { return nil }

// writesTo says whether a publisher writes to that outbox of db.
func writesTo(publisher message.Publisher, db *sql.DB, outbox *spool.Spool) bool {
	switch p := publisher.(type) {
	case keptOpen:
		return writesTo(p.Publisher, db, outbox)
	case decorated:
		return writesTo(p.outbox, db, outbox)
	case boundPublisher:
		return writesTo(p.p, db, outbox)
	case *Publisher:
		return p != nil && p.db == db && p.spool.Is(outbox)
	default:
		return false
	}
}

// Close does nothing.
func (keptOpen) Close() error { return nil }

// PublishesInTx returns the publisher's answer.
func (k keptOpen) PublishesInTx() bool { return given.PublishesInTx(k.Publisher) }

// store writes drafts to the outbox, and returns the positions of those that it has left out.
func (p *Publisher) store(ctx context.Context, db spool.Executor, drafts []spool.Draft) (skipped []int, err error) {
	if !slices.ContainsFunc(drafts, func(d spool.Draft) bool { return d.UniqueKey != "" }) {
		return nil, p.spool.Append(ctx, db, p.run, drafts)
	}
	for i := range drafts {
		drafts[i].Awaited = len(awaited(p.config.Receipts, drafts[i:i+1], nil)) > 0
	}
	return p.spool.AppendUnique(ctx, db, p.exec, drafts)
}

// prepareFor checks, as far as possible, that a transaction is in the database of the publisher. If
// the transaction cannot be asked for the number of the outbox, it makes sure that the number is
// known, and reads it again if a connection is free.
func (p *Publisher) prepareFor(ctx context.Context, db postbox.Executor) error {
	if tx, standard := db.(*sql.Tx); standard {
		return p.place.Check(ctx, tx)
	}
	known := p.spool.ID() != 0
	if _, asks := db.(spool.Querier); asks || !p.spool.Aged() || known && p.exhausted() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, registerPatience)
	defer cancel()
	find := p.spool.Open
	if p.spool.Statements.Kind.Can().OneWriter { // which is that transaction, so no other connection can register the outbox
		find = p.spool.FindCommitted
	}
	_, err := find(ctx, p.db)
	if known {
		return nil
	}
	if errors.Is(err, sql.ErrNoRows) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w: keep a connection of the publisher's *sql.DB free, and start the forwarder of the outbox first", spool.ErrUnknown, err)
	}
	return err
}
