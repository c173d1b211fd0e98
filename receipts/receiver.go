package receipts

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/cleanup"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/given"
	"github.com/postbox-go/watermill-postbox/internal/lifecycle"
	"github.com/postbox-go/watermill-postbox/internal/meter"
	"github.com/postbox-go/watermill-postbox/internal/receipt"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/txscope"
	"github.com/postbox-go/watermill-postbox/metrics"
)

// Receiver keeps the receipts that consumers send, in the producer's database. It is safe for
// concurrent use, by any number of processes.
//
// Its two parts are independent. [Receiver.Handle] stores receipts. [Receiver.Run] looks for
// overdue receipts and deletes old ones: run it in at least one process, or the table of receipts
// grows without bound. [AddReceiver] adds both to a router. After a crash both go
// on where they were, with some receipts twice.
type Receiver struct {
	db          *sql.DB
	config      Config
	statements  *dialect.Statements
	place       *spool.Place
	metrics     metrics.Recorder
	tellTimeout time.Duration // for how long a step tells of overdue receipts
	fit         atomic.Bool   // set once the database has proved usable
	life        lifecycle.Once
	logger      watermill.LoggerAdapter
}

// NewReceiver returns a receiver for the outboxes in db, which [postbox.Migrate] has prepared. A
// nil logger logs nothing.
func NewReceiver(db postbox.Database, config Config, logger watermill.LoggerAdapter) (*Receiver, error) {
	config.setDefaults()
	statements, err := spool.StatementsIn(db)
	if err := errors.Join(err, config.validate()); err != nil {
		return nil, fmt.Errorf("receiver of receipts: %w", err)
	}
	if given.Nil(logger) {
		logger = watermill.NopLogger{}
	}
	return &Receiver{
		db: db.DB, config: config, statements: statements, place: spool.NewPlace(db.DB, statements),
		metrics: meter.Guarded(db.Metrics, logger), tellTimeout: tellTimeout, logger: logger,
	}, nil
}

// Handle stores a receipt. It is a handler for Watermill's AddConsumerHandler on the topic of the
// receipts, and needs no inbox: a receipt that comes again changes nothing. A receipt that nothing
// awaited is stored too. A late one completes the row of the receipt that was missing.
//
// A message that is no receipt is logged, counted and acked, because it would never be one. An
// error of the database is returned, so the message comes again.
//
// Handle costs one UPDATE for an awaited receipt, up to two statements more for others, and four
// more for one that comes again. If the message's context carries a transaction, they are part of
// it; otherwise each commits by itself.
func (r *Receiver) Handle(msg *message.Message) error {
	if msg == nil {
		return fmt.Errorf("store a receipt: %w", postbox.Permanent(errors.New("the message is nil")))
	}
	came, err := receipt.Parse(msg)
	if err != nil {
		r.logger.Error("Postbox ignores a message on the topic of receipts that is none", err, watermill.LogFields{"message_uuid": msg.UUID})
		countReceived(r.metrics, "", "", malformed)
		return nil
	}
	result, err := r.store(msg.Context(), came)
	if err != nil {
		return fmt.Errorf("store the receipt of consumer %q for message %.60q: %w", came.Consumer, came.MessageID, err)
	}
	countReceived(r.metrics, came.Topic, came.Consumer, result)
	return nil
}

// store stores a receipt. One that was handled longer ago than the retention is only taken if it
// was awaited: a replay of the topic would fill the table. Each of its statements can run again, so
// none depends on the one before. The row that awaits a receipt may be committed while AddReceipt
// waits for that, so the first two run once more.
func (r *Receiver) store(ctx context.Context, came receipt.Receipt) (arrival, error) {
	db, err := r.executor(ctx)
	if err != nil {
		return "", err
	}
	row := dialect.ReceivedRow{
		Key: receipt.Key(came.MessageID, came.Topic, came.Consumer), Topic: came.Topic, MessageID: spool.Fitting([]byte(came.MessageID)),
		Consumer: came.Consumer, HandledAt: came.HandledAt.UnixMicro(),
	}
	type try struct {
		query  dialect.Query
		result arrival
	}
	tries := []try{
		{r.statements.FulfilReceipt(row, dialect.ReceiptAwaited), awaited},
		{r.statements.FulfilReceipt(row, dialect.ReceiptMissing), late},
	}
	unchanged := expired
	if time.Since(came.HandledAt) <= r.config.Retention {
		tries = slices.Concat(tries, []try{{r.statements.AddReceipt(row), unexpected}}, tries)
		unchanged = repeated
	}
	for _, try := range tries {
		changed, err := spool.Affected(db.ExecContext(ctx, try.query.Text, try.query.Args...))
		if err != nil {
			return "", spool.Wrap("write to the table of receipts", dialect.HideAddress(err))
		}
		if changed > 0 {
			return try.result, nil
		}
	}
	return unchanged, nil
}

// executor returns the transaction of the context, which must be in the database of the receiver,
// or the database itself.
func (r *Receiver) executor(ctx context.Context) (postbox.Executor, error) {
	if _, err := txscope.From(ctx).Live(); err != nil {
		return nil, err
	}
	if tx, carried := postbox.TxFromContext(ctx); carried {
		return tx, r.place.Check(ctx, tx)
	}
	if !r.fit.Load() {
		if err := r.statements.CheckServer(ctx, r.db); err != nil {
			return nil, err
		}
		r.fit.Store(true)
	}
	return r.db, nil
}

// Run looks for receipts that are overdue, and deletes old ones, until ctx ends or Close is called.
// One process at a time does this, in bounded statements, and the others stand by. If the database
// is unavailable, Run logs that and waits. It returns, and logs, an error if waiting does not help
// when it begins: the tables are missing, or the database has another dialect or is set in a way
// that would break promises (docs/databases.md). It can be called once.
func (r *Receiver) Run(ctx context.Context) error {
	ctx, end, err := r.life.Begin(ctx, "receiver of receipts")
	if err != nil {
		return err
	}
	defer end()
	if err := r.open(ctx); err != nil {
		return r.stopped(err)
	}
	r.cleaner().Run(ctx)
	return nil
}

// cleaner returns what Run runs, under the name of a process of its own.
func (r *Receiver) cleaner() *cleanup.Cleaner {
	old := func(state int) func(dialect.PurgeParams) dialect.Query {
		return func(p dialect.PurgeParams) dialect.Query { return r.statements.PurgeReceipts(state, p) }
	}
	search := &overdue{db: r.db, statements: r.statements, logger: r.logger, tell: r.missed, most: r.tellTimeout, next: r.tellTimeout}
	return cleanup.New(r.db, r.statements, spool.ProcessName()+" "+postbox.NewMessageID(), cleanup.Config{Others: []cleanup.Task{
		cleanup.Purge("receipts", r.config.Retention, old(dialect.ReceiptReceived), old(dialect.ReceiptMissing)), // an awaited one stays until it was told of
		cleanup.Repeat("overdue receipts", search.work),
	}}, r.logger)
}

// Close ends Run, and waits for its end, which may take up to five seconds, and the time that
// OnMissing takes after its context has ended. It can be called twice. Handle works also
// afterwards.
func (r *Receiver) Close() error {
	r.life.Close()
	return nil
}

// missed reports a receipt that has not come in time.
func (r *Receiver) missed(ctx context.Context, overdue receipt.Stored) error {
	if r.config.OnMissing != nil {
		err := r.config.OnMissing(ctx, MissingParams{
			Topic: overdue.Topic, MessageID: overdue.MessageID, Consumer: overdue.Consumer, SentAt: overdue.SentAt, DueAt: overdue.DueAt,
		})
		if err != nil {
			return err
		}
	}
	countMissed(r.metrics, overdue.Topic, overdue.Consumer)
	return nil
}
