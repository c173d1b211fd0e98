package security_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/inbox"
	"github.com/postbox-go/watermill-postbox/internal/receipt"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
	"github.com/postbox-go/watermill-postbox/receipts"
	"github.com/postbox-go/watermill-postbox/sources"
)

// Each role does its whole work with the rights that docs/security.md grants it, one after the
// other, so that each has the chores of cleaning up for itself; and the database refuses what it
// may not do.
func TestRoles_are_enough_and_no_more(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) *testdb.Database{"postgres": testdb.Postgres, "mariadb": testdb.MySQL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := open(t)
			p := &play{cast: newCast(t, database), logger: newCapture()}
			p.migrate(t)
			p.forward(t, nil, 0) // it makes the outbox
			p.produce(t)
			p.forward(t, errBroker, 2)
			p.produceUnique(t)
			p.produceUniqueAtOnce(t)
			p.takeOver(t)
			p.receive(t)
			p.consume(t)
			p.keep(t)
			p.work(t)
			p.operate(t)
			require.NotContains(t, p.logger.everything(), "denied")
			require.Contains(t, p.logger.everything(), "Postbox moved a message to the dead letters")
		})
	}
}

var errBroker = errors.New("the broker says no")

// play is the acts of the roles.
type play struct {
	*cast
	logger capture
}

func (p *play) migrate(t *testing.T) {
	t.Helper()
	db := p.migrator(t)
	if p.database.Dialect == postbox.PostgreSQL { // as an administrator may have set it
		_, err := db.ExecContext(t.Context(), "ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC")
		require.NoError(t, err)
	}
	for range 2 { // the second finds nothing to do
		require.NoError(t, postbox.Migrate(t.Context(), p.database.On(db)))
	}
	p.refused(t, db, intrude, deleteOrders)
}

// forward runs a forwarder until the outbox is empty and so many messages are dead.
func (p *play) forward(t *testing.T, answer error, dead int) {
	t.Helper()
	db := p.as(t, "", "forwarder", "forwarder")
	fwd, err := forwarder.New(p.database.On(db), sink{answer}, forwarder.Config{
		Retry:  postbox.RetryProfile{Attempts: 2, Base: time.Millisecond, Cap: time.Millisecond},
		Tuning: postbox.Tuning{OutageLimit: time.Millisecond}, // each failure counts after it: nothing else gets through that could prove the broker to work
	}, p.logger)
	require.NoError(t, err)
	p.during(t, fwd.Run, fwd.Running(), fwd.Close, func() bool {
		return p.database.Count(t, storedMessages) == 0 && p.database.Count(t, failedMessage) == dead
	})
	p.refused(t, db, countOrders, intrude, readDead, readClaims, pauseOthers, changeVersion, createTable, dropTable)
}

// takeOver runs a forwarder over a table of watermill-sql.
func (p *play) takeOver(t *testing.T) {
	t.Helper()
	old := newOldTable(t, p.database)
	require.NoError(t, old.Publish("events", message.NewMessage("old", nil)))
	db := p.as(t, "", "sources", "forwarder", "sources")
	fwd, err := forwarder.New(p.database.On(db), sink{}, forwarder.Config{
		Sources: []forwarder.Source{sources.WatermillSQL(sources.Config{Topic: "events", PollMin: time.Millisecond})},
	}, p.logger)
	require.NoError(t, err)
	p.during(t, fwd.Run, fwd.Running(), fwd.Close, func() bool {
		return p.database.Count(t, oldMessages) == 0 && p.database.Count(t, storedMessages) == 0
	})
	p.refused(t, db, countOrders, intrude, readDead, readClaims, pauseOthers, changeVersion, createTable, dropTable)
}

// during runs something until what it should do is done.
func (p *play) during(t *testing.T, run func(context.Context) error, running <-chan struct{}, stop func() error, done func() bool) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- run(t.Context()) }()
	select {
	case <-running:
	case err := <-ended:
		require.NoError(t, err)
	}
	require.Eventually(t, done, patience, tick, "%s", p.logger.everything())
	require.NoError(t, stop())
	require.NoError(t, <-ended)
}

// produce writes an order and two messages, of which one is for later.
func (p *play) produce(t *testing.T) {
	t.Helper()
	db := p.as(t, "INSERT", "producer", "producer")
	outbox := p.outbox(t, db)
	require.NoError(t, postbox.InTx(t.Context(), db, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, p.database.Bind(insertOrder), "1"); err != nil {
			return err
		}
		msg := message.NewMessageWithContext(ctx, "1", []byte("hello"))
		msg.Metadata.Set(postbox.MetadataOrderingKey, "customer")
		later := message.NewMessageWithContext(ctx, "later", nil)
		delay.Message(later, delay.For(time.Millisecond))
		return outbox.Publish("orders", msg, later)
	}))
	require.Equal(t, 2, p.database.Count(t, storedMessages))
	require.Equal(t, 2, p.database.Count(t, awaitedReceipts))
	p.refused(t, db, readReceipts, changeReceipts, readMessages, readTopics, changeMessages, deleteMessages, readClaims, deleteClaims, readDead, readFailures, readHistory,
		readLanes, stealLanes, addSpool, pauseSpools, createTable, dropTable, countOrders)

	unknown, err := forwarder.NewPublisher(p.database.On(db), forwarder.PublisherConfig{Outbox: "another", AllowAutocommit: true}, p.logger)
	require.NoError(t, err)
	require.ErrorContains(t, unknown.Publish("orders", message.NewMessage("2", nil)), `register spool "another"`)
	require.NoError(t, unknown.Close())
}

func (p *play) outbox(t *testing.T, db *sql.DB) *forwarder.Publisher {
	t.Helper()
	outbox, err := forwarder.NewPublisher(p.database.On(db), forwarder.PublisherConfig{
		AllowAutocommit: true, Receipts: []forwarder.Expectation{{Topic: "orders", Consumers: []string{"billing"}, Within: time.Millisecond}},
	}, p.logger)
	require.NoError(t, err)
	t.Cleanup(func() { _ = outbox.Close() })
	return outbox
}

// produceUnique skips and replaces messages.
func (p *play) produceUnique(t *testing.T) {
	t.Helper()
	db := p.as(t, "", "unique_producer", "producer", "unique_producer")
	outbox := p.outbox(t, db)
	require.NoError(t, postbox.InTx(t.Context(), db, func(ctx context.Context, _ *sql.Tx) error {
		for _, msg := range []*message.Message{
			postbox.SkipIfWaiting(messageIn(ctx, "first"), "key"), postbox.SkipIfWaiting(messageIn(ctx, "skipped"), "key"),
			postbox.ReplaceWaiting(messageIn(ctx, "latest"), "key"),
		} {
			if err := outbox.Publish("topic", msg); err != nil {
				return err
			}
		}
		return nil
	}))
	require.Equal(t, 1, p.database.Count(t, storedMessages))
	p.refused(t, db, countOrders, intrude, readDead, readClaims, pauseOthers, changeVersion, createTable, dropTable)
}

// produceUniqueAtOnce skips and replaces messages with the fewest rights: those that the document
// leaves out for a producer that never delays a message and awaits no receipts, and none to delete
// for one that replaces no message.
func (p *play) produceUniqueAtOnce(t *testing.T) {
	t.Helper()
	producer := without(grants(t, "producer"), " postbox_waiting ", " postbox_receipts ", " SEQUENCE ")
	unique := grants(t, "unique_producer")
	publish := func(name string, rights []string, as func(*message.Message, string) *message.Message) error {
		db := p.granted(t, "", name, slices.Concat(producer, rights))
		outbox, err := forwarder.NewPublisher(p.database.On(db), forwarder.PublisherConfig{}, p.logger)
		require.NoError(t, err)
		t.Cleanup(func() { _ = outbox.Close() })
		return postbox.InTx(t.Context(), db, func(ctx context.Context, _ *sql.Tx) error {
			for _, id := range []string{name, name + " again"} {
				if err := outbox.Publish("at once", as(messageIn(ctx, id), name)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	before := p.database.Count(t, storedMessages)
	require.NoError(t, publish("replacer", unique, postbox.ReplaceWaiting))
	require.Equal(t, before+1, p.database.Count(t, storedMessages))
	if p.database.Dialect != postbox.PostgreSQL {
		return // no sequence, and no rights of a producer that only skips
	}
	skips := append(without(unique, " DELETE "), "GRANT SELECT (id, spool, state, lane, created_at, xmax) ON postbox_messages TO unique_producer")
	require.NoError(t, publish("skipper", skips, postbox.SkipIfWaiting))
	require.Equal(t, before+2, p.database.Count(t, storedMessages))
	for name, as := range map[string]func(*message.Message, string) *message.Message{"no_skipper": postbox.SkipIfWaiting, "no_replacer": postbox.ReplaceWaiting} {
		err := publish(name, without(unique, " SEQUENCE "), as)
		require.True(t, forbidden(err), "%v", err)
		require.ErrorContains(t, err, "postbox_messages_id_seq")
	}
}

// without returns the grants that contain none of the parts.
func without(grants []string, parts ...string) []string {
	return slices.DeleteFunc(slices.Clone(grants), func(grant string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(grant, part) })
	})
}

func (p *play) store(t *testing.T, db *sql.DB) *inboxstore.Store {
	t.Helper()
	store, err := inboxstore.New(p.database.On(db), inboxstore.Config{CacheSize: -1}, p.logger)
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// receive takes a receipt of one of the producer's messages, and reports that the other one is
// missing.
func (p *play) receive(t *testing.T) {
	t.Helper()
	db := p.as(t, "", "receiver", "receiver")
	missing := make(chan string, 2)
	receiver, err := receipts.NewReceiver(p.database.On(db), receipts.Config{OnMissing: func(_ context.Context, params receipts.MissingParams) error {
		missing <- params.MessageID
		return nil
	}}, p.logger)
	require.NoError(t, err)
	for _, consumer := range []string{"billing", "billing", "audit"} { // awaited, doubled, unexpected
		msg := message.NewMessageWithContext(t.Context(), "receipt", []byte(`{"consumer":"`+consumer+`","topic":"orders","message_id":"1","handled_at":"`+time.Now().Format(time.RFC3339)+`"}`))
		msg.Metadata.Set(receipt.Metadata, "1")
		require.NoError(t, receiver.Handle(msg))
	}
	ended := make(chan error, 1)
	go func() { ended <- receiver.Run(t.Context()) }()
	require.Equal(t, "later", <-missing)
	require.NoError(t, receiver.Close())
	require.NoError(t, <-ended)
	require.Zero(t, p.database.Count(t, awaitedReceipts))
	p.refused(t, db, readMessages, readDead, readClaims, countOrders, intrude, pauseOthers, createTable, dropTable)
}

// consume handles a message, with an order and a message of its own, hears it again, handles one
// that fails for good, and stores three for later.
func (p *play) consume(t *testing.T) {
	t.Helper()
	db := p.as(t, "INSERT", "consumer", "consumer", "producer")
	store, outbox := p.store(t, db), p.outbox(t, db)
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{
		Consumer: "billing", Topic: "orders", Outbox: outbox, PublishTopic: "invoices",
		Retry: postbox.RetryProfile{Attempts: 2, Base: time.Millisecond, Cap: time.Millisecond},
	}, p.logger)
	require.NoError(t, err)
	effect := func(msg *message.Message) ([]*message.Message, error) {
		tx, _ := postbox.TxFromContext(msg.Context())
		_, err := tx.ExecContext(msg.Context(), p.database.Bind(insertOrder), msg.UUID)
		return []*message.Message{message.NewMessage("invoice "+msg.UUID, nil)}, err
	}
	for _, fresh := range []bool{true, false} {
		processed, err := inbox.Process(t.Context(), message.NewMessage("a", nil), effect)
		require.NoError(t, err)
		require.Equal(t, fresh, processed)
	}
	failing := func(*message.Message) ([]*message.Message, error) { return nil, errBroker }
	_, err = inbox.Process(t.Context(), message.NewMessage("b", nil), failing)
	require.ErrorIs(t, err, errBroker)
	_, err = inbox.Process(t.Context(), message.NewMessage("b", nil), failing)
	require.NoError(t, err, "it is a dead letter now")

	for _, id := range []string{"later", "later", "poison", "waits"} {
		msg := message.NewMessage(id, nil)
		if id == "later" {
			delay.Message(msg, delay.For(time.Millisecond))
		}
		_, err := store.Defer(t.Context(), "queue", inboxstore.Key{Consumer: "queue", Topic: "orders", MessageID: id}, msg)
		require.NoError(t, err)
	}
	require.NoError(t, store.Close())
	p.refused(t, db, readMessages, changeMessages, deleteMessages, readDead, readFailures, readHistory, readLanes, stealLanes, pauseSpools,
		createTable, dropTable, countOrders)
}

// keep handles a message, and keeps it.
func (p *play) keep(t *testing.T) {
	t.Helper()
	db := p.as(t, "INSERT", "history", "consumer", "history")
	store := p.store(t, db)
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Consumer: "archive", Topic: "orders", History: time.Hour}, p.logger)
	require.NoError(t, err)
	_, err = inbox.Process(t.Context(), message.NewMessage("kept", nil), func(*message.Message) ([]*message.Message, error) { return nil, nil })
	require.NoError(t, err)
	require.NoError(t, store.Close())
	require.Equal(t, 1, p.database.Count(t, "SELECT COUNT(*) FROM postbox_history WHERE message_id = ?", []byte("kept")))
	p.refused(t, db, readMessages, changeMessages, readDead, readHistory, stealLanes, pauseSpools, createTable, dropTable, countOrders)
}

// work handles what was stored: each message in a transaction, then the rest as a batch.
func (p *play) work(t *testing.T) {
	t.Helper()
	db := p.as(t, "INSERT, SELECT", "worker", "forwarder", "consumer")
	store, outbox := p.store(t, db), p.outbox(t, db)
	require.Equal(t, []string{"queue"}, p.pending(t, store))
	config := queue.Config{
		Transactional: true, History: time.Hour, Poison: queue.Poison{Outbox: outbox, Topic: "poison"},
		Retry: postbox.RetryProfile{Attempts: 2, Base: time.Millisecond, Cap: time.Millisecond},
	}
	subscriber, err := queue.NewSubscriber(store, config, p.logger)
	require.NoError(t, err)
	require.NoError(t, subscriber.SubscribeInitialize("queue"))
	messages, err := subscriber.Subscribe(t.Context(), "queue")
	require.NoError(t, err)
	for waiting := 2; waiting > 0; {
		msg := <-messages
		if msg.UUID == "poison" {
			queue.Fail(msg.Context(), postbox.Permanent(errBroker))
			msg.Nack()
			waiting--
			continue
		}
		if msg.UUID == "waits" {
			queue.Fail(msg.Context(), postbox.RetryAfter(errBroker, time.Second))
			msg.Nack()
			continue
		}
		tx, _ := postbox.TxFromContext(msg.Context())
		_, err := tx.ExecContext(msg.Context(), p.database.Bind(insertOrder), msg.UUID)
		require.NoError(t, err)
		require.NoError(t, outbox.Publish("done", messageIn(msg.Context(), "from the worker")))
		msg.Ack()
		waiting--
	}
	require.NoError(t, subscriber.Close())

	handled := make(chan int, 1)
	batch, err := queue.NewBatch(store, "queue", func(_ context.Context, batch []*message.Message) error {
		handled <- len(batch)
		return nil
	}, queue.BatchConfig{Age: time.Millisecond, Worker: queue.Config{Transactional: true}}, p.logger)
	require.NoError(t, err)
	p.during(t, batch.Run, batch.Running(), batch.Close, func() bool { return len(p.pending(t, store)) == 0 })
	require.Equal(t, 1, <-handled)
	require.NoError(t, store.Close())
	p.refused(t, db, readDead, pauseOthers, stealVersion, createTable, dropTable, deleteOrders)
}

func (p *play) pending(t *testing.T, store *inboxstore.Store) []string {
	t.Helper()
	queues, err := inbox.CoreOf(store).PendingQueues(t.Context())
	require.NoError(t, err)
	return queues
}

func messageIn(ctx context.Context, id string) *message.Message {
	return message.NewMessageWithContext(ctx, id, nil)
}

// sink is a broker that answers as it is told.
type sink struct{ answer error }

func (s sink) Publish(string, ...*message.Message) error { return s.answer }

func (s sink) Close() error { return nil }
