// Package dashboardtest fills a database with messages of all kinds, for the tests of the
// dashboard: those of its handlers, and those in a browser, which are in a module of their own.
package dashboardtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Hostile is what a producer writes who attacks the operator: a script, the end of an attribute,
// bytes that are no UTF-8, a character that turns the direction of writing, and what has a meaning
// in an address.
const Hostile = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>\xff\xfe\x00\u202e%2F/../?&=#;javascript:alert(1)"

// Outbox is the outbox of the shop, and Queue the queue of its inbox.
const (
	Outbox = "outbox"
	Queue  = "fraud checks"
)

const (
	patience = time.Minute
	lanes    = 32 // the default
)

// Shop is a database with messages.
type Shop struct {
	testing.TB

	Database *testdb.Database
	Admin    *admin.Admin
	outbox   *forwarder.Publisher
	names    *dialect.Statements
}

// New migrates the database, and publishes nothing.
func New(tb testing.TB, database *testdb.Database) *Shop {
	tb.Helper()
	database.Migrate(tb)
	operator, err := admin.New(database.Postbox(), admin.Config{AllowEdit: true}, nil)
	require.NoError(tb, err)
	publisher, err := forwarder.NewPublisher(database.Postbox(), forwarder.PublisherConfig{AllowAutocommit: true}, nil)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, publisher.Close()) })
	statements, err := dialect.For(dialect.Kind(database.Dialect), "", "", "")
	require.NoError(tb, err)
	return &Shop{TB: tb, Database: database, Admin: operator, outbox: publisher, names: statements}
}

// Message returns a message with a key, or without one.
func Message(id, key, payload string) *message.Message {
	msg := message.NewMessage(id, []byte(payload))
	if key != "" {
		msg.Metadata.Set(postbox.MetadataOrderingKey, key)
	}
	return msg
}

// Publish writes messages to the outbox.
func (s *Shop) Publish(topic string, messages ...*message.Message) {
	s.Helper()
	require.NoError(s, s.outbox.Publish(topic, messages...))
}

// Enqueue writes a message to the queue.
func (s *Shop) Enqueue(id, key, payload string) {
	s.Helper()
	queue := spool.New(s.names, spool.QueuePrefix+Queue)
	draft := spool.Draft{Topic: "orders", MessageID: id, Key: key, Payload: []byte(payload), Metadata: map[string]string{"about": id}}
	require.NoError(s, queue.Append(context.Background(), s.Database.DB, spool.Run, []spool.Draft{draft}))
}

// broker is a publisher that does what the test says.
type broker func(msg *message.Message) error

// Publish calls the function for each message.
func (b broker) Publish(_ string, messages ...*message.Message) error {
	for _, msg := range messages {
		if err := b(msg); err != nil {
			return err
		}
	}
	return nil
}

// Close does nothing.
func (broker) Close() error { return nil }

// Forward runs a forwarder until the condition holds.
func (s *Shop) Forward(publish func(msg *message.Message) error, until func() bool) {
	s.Helper()
	fwd, err := forwarder.New(s.Database.Postbox(), broker(publish), forwarder.Config{}, nil)
	require.NoError(s, err)
	ended := make(chan error, 1)
	go func() { ended <- fwd.Run(context.Background()) }()
	require.Eventually(s, until, patience, testdb.PollPause)
	require.NoError(s, fwd.Close())
	require.NoError(s, <-ended)
}

// Die publishes messages, and lets them become dead letters with this error.
func (s *Shop) Die(topic, text string, messages ...*message.Message) {
	s.Helper()
	dead := s.dead() + len(messages)
	chosen := map[string]bool{}
	for _, msg := range messages {
		chosen[msg.UUID] = true
	}
	s.Publish(topic, messages...)
	s.Forward(func(msg *message.Message) error {
		if chosen[msg.UUID] {
			return postbox.Permanent(errors.New(text))
		}
		return postbox.RetryAfter(errors.New("the broker says no"), time.Hour)
	}, func() bool { return s.dead() == dead })
}

// DieMany is [Shop.Die] for many messages at once.
func (s *Shop) DieMany(topic string, n int) {
	s.Helper()
	messages := make([]*message.Message, n)
	for i := range messages {
		messages[i] = Message(fmt.Sprintf("%s-%04d", topic, i), "", "{}")
	}
	s.Die(topic, "the broker says no", messages...)
}

// Delay publishes a message that fails for the first time and waits an hour.
func (s *Shop) Delay(topic string, msg *message.Message) {
	s.Helper()
	s.Publish(topic, msg)
	s.Forward(func(*message.Message) error {
		return postbox.RetryAfter(errors.New("card terminal 7 is offline"), time.Hour)
	}, func() bool { return s.Count(admin.Retrying) > 0 })
}

// Count returns the number of messages in the outbox with a status.
func (s *Shop) Count(status admin.Status) int {
	s.Helper()
	found, _, err := s.Admin.Messages(context.Background(), admin.Filter{Target: admin.Outbox(Outbox), Status: status, Limit: 1000})
	require.NoError(s, err)
	return len(found)
}

func (s *Shop) dead() int {
	s.Helper()
	return s.Database.Count(s, "SELECT COUNT(*) FROM postbox_dead_letters")
}

// Receive lets the inbox of a consumer handle messages of a topic, and keep them. It keeps up to
// 1,000 bytes of each.
func (s *Shop) Receive(consumer, topic string, messages ...*message.Message) {
	s.Helper()
	store, err := inboxstore.New(s.Database.Postbox(), inboxstore.Config{}, nil)
	require.NoError(s, err)
	defer func() { require.NoError(s, store.Close()) }()
	for _, msg := range messages {
		key := inboxstore.Key{Consumer: consumer, Topic: topic, MessageID: msg.UUID}
		_, err := store.OnceReceived(context.Background(), key, inboxstore.Received{Message: msg, History: time.Hour, MaxPayload: 1000},
			func(context.Context) error { return nil })
		require.NoError(s, err)
	}
}

// BuryInbox writes a dead letter of an inbox, with its history of failures.
func (s *Shop) BuryInbox(id, topic, consumer, text string) {
	s.Helper()
	metadata, err := spool.EncodeMetadata(map[string]string{"about": id, "hostile": Hostile})
	require.NoError(s, err)
	hash, subject := int64(7), []byte("subject of "+id)
	for attempt := 1; attempt <= 2; attempt++ {
		s.run(s.names.InsertFailure(dialect.Failure{Subject: subject, Attempt: attempt, Error: text, Process: "host 42"}))
	}
	s.run(s.names.InsertDeadLetter(dialect.InboxLetter{
		Letter: dialect.Letter{
			Subject: subject, Topic: topic, MessageID: []byte(id), Payload: []byte(`{"order":"` + id + `"}`),
			Metadata: metadata, Error: text,
		},
		Consumer: consumer, Source: topic, CarriedID: []byte(id), Key: []byte("customer-1"), KeyHash: &hash, Attempts: 2,
	}))
	s.run(dialect.Query{Text: s.names.Claim, Args: []any{subject}})
}

func (s *Shop) run(query dialect.Query) {
	s.Helper()
	_, err := s.Database.DB.ExecContext(s.Context(), query.Text, query.Args...)
	require.NoError(s, err)
}

// Beat stores the heartbeat of a process that handles the outbox, as the process would.
func (s *Shop) Beat(process string, beat spool.Heartbeat) {
	s.Helper()
	id, err := spool.New(s.names, Outbox).Open(s.Context(), s.Database.DB)
	require.NoError(s, err)
	s.run(s.names.Join(dialect.JoinParams{Member: dialect.Member{Spool: id, Holder: process}, InFlight: beat.Encode(), TTL: time.Hour.Microseconds()}))
}

// Park makes a message that has not been handled yet one that has used up its attempts.
func (s *Shop) Park(messageID string) {
	s.Helper()
	s.Database.Exec(s, "UPDATE postbox_messages SET state = 2, attempts = 3, available_at = ? WHERE message_id = ?", dialect.ParkedFrom, []byte(messageID))
	s.Database.MoveWaiting(s)
}
