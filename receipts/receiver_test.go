package receipts_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/receipt"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/receipts"
)

func TestReceiver(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		p := newProducer(t, database)
		for name, test := range map[string]func(p *producer){
			"an awaited receipt is received, and a doubled one changes nothing":  doubled,
			"a message that is rolled back awaits nothing":                       rolledBack,
			"receipts that nothing awaited are stored":                           unexpected,
			"a receipt older than the retention is ignored unless it is awaited": expired,
			"a message that is no receipt is acked":                              malformed,
			"a receipt in a transaction commits with it":                         inTransaction,
			"ids of any bytes":                         anyBytes,
			"a delayed message is due later":           delayed,
			"a message that is skipped awaits nothing": skipped,
			"a receipt awaits none itself":             receiptOnTopic,
		} {
			t.Run(name, func(t *testing.T) { test(p.on(t)) }) //nolint:paralleltest // they share a database, and a pool of one connection on SQLite
		}
	})
}

func doubled(p *producer) {
	receiver := p.receiver(receipts.Config{})
	id := postbox.NewMessageID()
	p.publish("orders", id)
	require.Equal(p, []string{"orders billing awaited", "orders stock awaited"}, p.receipts(id))
	handled := time.Now().Add(-time.Minute).Truncate(time.Microsecond)
	require.NoError(p, receiver.Handle(receiptOf(p.T, "orders", id, "billing", handled)))
	before, _, err := p.admin.Receipts(p.Context(), admin.Filter{MessageID: id})
	require.NoError(p, err)
	require.NoError(p, receiver.Handle(receiptOf(p.T, "orders", id, "billing", time.Now())))
	after, _, err := p.admin.Receipts(p.Context(), admin.Filter{MessageID: id})
	require.NoError(p, err)
	require.Equal(p, before, after)
	require.Equal(p, []string{"orders billing received", "orders stock awaited"}, p.receipts(id))
	require.Equal(p, []string{"received orders billing awaited", "received   duplicate"}, p.measured.taken())
	for _, r := range after {
		require.InDelta(p, time.Hour, r.DueAt.Sub(r.SentAt), float64(time.Millisecond), "a clock may be read twice")
		if r.Status == "RECEIVED" {
			require.True(p, handled.Equal(r.HandledAt), "%s and not %s", r.HandledAt, handled)
			require.False(p, r.ReceivedAt.IsZero())
		}
	}
}

func rolledBack(p *producer) {
	id := postbox.NewMessageID()
	err := postbox.InTx(p.Context(), p.database.DB, func(ctx context.Context, _ *sql.Tx) error {
		msg := message.NewMessage(id, nil)
		msg.SetContext(ctx)
		return errors.Join(p.outbox.Publish("orders", msg), errRefused)
	})
	require.ErrorIs(p, err, errRefused)
	require.Empty(p, p.receipts(id))
}

var errRefused = errors.New("refused")

// A program published a message to the broker and writes it to the outbox only then. The receipt
// comes before it commits.
func TestReceiver_takes_a_receipt_that_comes_while_its_row_is_written(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		p := newProducer(t, database)
		receiver := p.receiver(receipts.Config{})
		p.publish("orders", "before") // registers the outbox
		tx, err := database.DB.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		require.NoError(t, p.outbox.Bind(tx).Publish("orders", message.NewMessage("1", nil)))
		came := receiptOf(t, "orders", "1", "billing", time.Now())
		done := make(chan error, 1)
		go func() { done <- receiver.Handle(came) }()
		waits := "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%postbox_receipts%' AND pid IN " +
			"(SELECT l.pid FROM pg_locks l WHERE l.relation = 'postbox_receipts'::regclass)"
		if database.Dialect == postbox.MySQL {
			waits = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND INFO LIKE '%postbox_receipts%' AND COMMAND <> 'Sleep' AND ID <> CONNECTION_ID()"
		}
		require.Eventually(t, func() bool { return database.Count(t, waits) > 0 }, enginetest.Patience, testdb.PollPause, "it waits for the transaction")
		require.NoError(t, tx.Commit())
		require.NoError(t, <-done)
		require.Equal(t, []string{"orders billing received", "orders stock awaited"}, p.receipts("1"))
		require.Equal(t, []string{"received orders billing awaited"}, p.measured.taken())
	})
}

func unexpected(p *producer) {
	receiver := p.receiver(receipts.Config{})
	require.NoError(p, receiver.Handle(receiptOf(p.T, "orders", "early", "billing", time.Now())))
	require.NoError(p, receiver.Handle(receiptOf(p.T, "orders", "early", "audit", time.Now())))
	require.NoError(p, receiver.Handle(receiptOf(p.T, "refunds", "early", "billing", time.Now())))
	require.Equal(p, []string{"orders audit received", "orders billing received", "refunds billing received"}, p.receipts("early"))
	p.publish("orders", "early") // as by a program that published first and wrote then
	require.Equal(p, []string{"orders audit received", "orders billing received", "orders stock awaited", "refunds billing received"}, p.receipts("early"))
	require.Equal(p, []string{
		"received   unexpected", "received   unexpected", "received   unexpected",
	}, p.measured.taken())
}

func expired(p *producer) {
	receiver := p.receiver(receipts.Config{Retention: time.Hour})
	require.NoError(p, receiver.Handle(receiptOf(p.T, "orders", "old", "billing", time.Now().Add(-2*time.Hour))))
	require.Empty(p, p.receipts("old"))
	require.Equal(p, []string{"received   expired"}, p.measured.taken())

	p.publish("orders", "slow") // a longer time to handle it may be awaited than receipts are kept
	for range 2 {
		require.NoError(p, receiver.Handle(receiptOf(p.T, "orders", "slow", "billing", time.Now().Add(-2*time.Hour))))
		require.Equal(p, []string{"orders billing received", "orders stock awaited"}, p.receipts("slow"))
	}
	require.Equal(p, []string{"received orders billing awaited", "received   expired"}, p.measured.taken())
}

func malformed(p *producer) {
	receiver := p.receiver(receipts.Config{})
	unmarked := receiptOf(p.T, "orders", "1", "billing", time.Now())
	unmarked.Metadata = nil
	later := receiptOf(p.T, "orders", "1", "billing", time.Now())
	later.Metadata.Set(receipt.Metadata, "2")
	nameless := receiptOf(p.T, "orders", "1", "billing", time.Now())
	nameless.Payload = []byte(`{"topic":"orders","message_id":"1","handled_at":"2026-11-26T10:00:00Z"}`)
	broken := receiptOf(p.T, "orders", "1", "billing", time.Now())
	broken.Payload = broken.Payload[1:]
	for _, msg := range []*message.Message{unmarked, later, nameless, broken} {
		require.NoError(p, receiver.Handle(msg))
	}
	require.Equal(p, []string{"received   malformed", "received   malformed", "received   malformed", "received   malformed"}, p.measured.taken())
	require.Equal(p, 4, p.log.Said("that is none"))
	require.Empty(p, p.receipts("1"))
}

func TestReceiver_logs_nothing_of_what_is_no_receipt(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	p := newProducer(t, database).on(t)
	receiver := p.receiver(receipts.Config{})
	later := receiptOf(p.T, "orders", "1", "billing", time.Now())
	later.Metadata.Set(receipt.Metadata, "card 4711")
	broken := receiptOf(p.T, "orders", "1", "billing", time.Now())
	broken.Payload = []byte(`{"handled_at":"card 4711"}`)
	nameless := receiptOf(p.T, "orders", "1", "billing", time.Now())
	nameless.Payload = []byte(`{"topic":"card 4711\u0000","consumer":"card 4711\u0000","message_id":"1","handled_at":"2026-11-26T10:00:00Z"}`)
	for _, msg := range []*message.Message{later, broken, nameless} {
		require.NoError(p, receiver.Handle(msg))
	}
	lines := p.log.At(watermill.ErrorLogLevel)
	require.Len(p, lines, 3)
	for _, line := range lines {
		require.NotContains(p, fmt.Sprint(line), "4711")
	}
}

func inTransaction(p *producer) {
	receiver := p.receiver(receipts.Config{})
	p.publish("orders", "within")
	for _, refused := range []error{errRefused, nil} {
		err := postbox.InTx(p.Context(), p.database.DB, func(ctx context.Context, _ *sql.Tx) error {
			msg := receiptOf(p.T, "orders", "within", "billing", time.Now())
			msg.SetContext(ctx)
			return errors.Join(receiver.Handle(msg), refused)
		})
		require.ErrorIs(p, err, refused)
		status := map[bool]string{true: "awaited", false: "received"}[refused != nil]
		require.Equal(p, []string{"orders billing " + status, "orders stock awaited"}, p.receipts("within"))
	}
}

func anyBytes(p *producer) {
	receiver := p.receiver(receipts.Config{})
	for _, id := range []string{"order\xff\x00", "order", "order-1", "01ARZ3NDEKTSV4RRFFQ69G5FAV"} {
		p.publish("orders", id)
		require.NoError(p, receiver.Handle(receiptOf(p.T, "orders", id, "billing", time.Now())))
		require.Equal(p, []string{"orders billing received", "orders stock awaited"}, p.receipts(id), "%q", id)
	}
}

func delayed(p *producer) {
	msg := message.NewMessage("tomorrow", nil)
	delay.Message(msg, delay.For(24*time.Hour))
	at := message.NewMessage("at a time", nil)
	until := time.Now().Add(48 * time.Hour).UTC().Truncate(time.Second)
	delay.Message(at, delay.Until(until))
	require.NoError(p, postbox.InTx(p.Context(), p.database.DB, func(ctx context.Context, _ *sql.Tx) error {
		msg.SetContext(ctx)
		at.SetContext(ctx)
		return p.outbox.Publish("soon", msg, at)
	}))
	for id, after := range map[string]time.Duration{"tomorrow": 24 * time.Hour, "at a time": 48 * time.Hour} {
		known, _, err := p.admin.Receipts(p.Context(), admin.Filter{MessageID: id})
		require.NoError(p, err)
		require.Len(p, known, 1)
		require.WithinDuration(p, time.Now().Add(after), known[0].SentAt, time.Minute)
		require.InDelta(p, time.Millisecond, known[0].DueAt.Sub(known[0].SentAt), float64(time.Millisecond))
	}
}

func skipped(p *producer) {
	for _, id := range []string{"kept", "skipped"} {
		require.NoError(p, postbox.InTx(p.Context(), p.database.DB, func(ctx context.Context, _ *sql.Tx) error {
			msg := message.NewMessageWithContext(ctx, id, nil)
			postbox.SkipIfWaiting(msg, "key")
			return p.outbox.Publish("orders", msg)
		}))
	}
	require.Len(p, p.receipts("kept"), 2)
	require.Empty(p, p.receipts("skipped"))

	// The publisher looks its outbox up beside the transactions, and the pool has one connection.
	require.Eventually(p, func() bool {
		tx, err := p.database.DB.BeginTx(p.Context(), nil)
		require.NoError(p, err)
		defer func() { _ = tx.Rollback() }()
		return p.outbox.Bind(postbox.ExecFunc(tx.ExecContext)).Publish("unawaited", message.NewMessage("known", nil)) == nil
	}, time.Minute, testdb.PollPause)
	tx, err := p.database.DB.BeginTx(p.Context(), nil)
	require.NoError(p, err)
	defer func() { _ = tx.Rollback() }()
	through := p.outbox.Bind(postbox.ExecFunc(func(ctx context.Context, query string, args ...any) (struct{}, error) {
		_, err := tx.ExecContext(ctx, query, args...)
		return struct{}{}, err
	}))
	for _, key := range []string{"key", "another key"} {
		err := through.Publish("orders", postbox.SkipIfWaiting(message.NewMessage("unknown", nil), key))
		require.ErrorContains(p, err, "give postbox.ExecFunc a function whose result has a method RowsAffected")
		require.ErrorIs(p, err, postbox.ErrPermanent)
	}
	require.NoError(p, through.Publish("orders", postbox.ReplaceWaiting(message.NewMessage("replaces", nil), "key")), "it is stored in any case")
	require.NoError(p, through.Publish("unawaited", postbox.SkipIfWaiting(message.NewMessage("skips", nil), "key")))
}

func receiptOnTopic(p *producer) {
	require.NoError(p, postbox.InTx(p.Context(), p.database.DB, func(ctx context.Context, _ *sql.Tx) error {
		msg := receiptOf(p.T, "payments", "paid", "billing", time.Now())
		msg.UUID = "receipt"
		msg.SetContext(ctx)
		return p.outbox.Publish("orders", msg)
	}))
	require.Empty(p, p.receipts("receipt"))
}

func TestNewReceiver_tells_all_mistakes(t *testing.T) {
	t.Parallel()
	_, err := receipts.NewReceiver(postbox.Database{Dialect: postbox.SQLite}, receipts.Config{Retention: -1}, nil)
	require.ErrorContains(t, err, "Retention: -1ns is less than 1m0s")
	require.ErrorContains(t, err, "the database is nil")
}

func TestReceiver_Run_runs_once_until_it_is_closed(t *testing.T) {
	t.Parallel()
	p := newProducer(t, testdb.SQLite(t))
	told := make(chan string, 1)
	receiver := p.receiver(receipts.Config{OnMissing: func(_ context.Context, params receipts.MissingParams) error {
		told <- params.MessageID
		return nil
	}})
	p.publish("soon", "lost")
	p.overdue("lost")
	ended := make(chan error, 1)
	go func() { ended <- receiver.Run(t.Context()) }()
	select {
	case id := <-told:
		require.Equal(t, "lost", id)
	case <-time.After(enginetest.Patience):
		require.FailNow(t, "nothing was told")
	}
	require.ErrorContains(t, receiver.Run(t.Context()), "already running")
	require.NoError(t, receiver.Close())
	require.NoError(t, <-ended)
	require.ErrorIs(t, receiver.Run(t.Context()), postbox.ErrClosed)
	require.NoError(t, receiver.Close())
}

func TestReceiver_Handle_refuses_no_message(t *testing.T) {
	t.Parallel()
	err := newProducer(t, testdb.SQLite(t)).receiver(receipts.Config{}).Handle(nil)
	require.ErrorContains(t, err, "the message is nil")
	require.ErrorIs(t, err, postbox.ErrPermanent)
}
