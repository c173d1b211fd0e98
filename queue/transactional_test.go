package queue_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

func (b *queueBench) outbox() message.Publisher {
	b.T.Helper()
	publisher, err := forwarder.NewPublisher(b.On(b.Pool), forwarder.PublisherConfig{}, nil)
	require.NoError(b.T, err)
	b.T.Cleanup(func() { require.NoError(b.T, publisher.Close()) })
	return publisher
}

func (b *queueBench) receipts() int {
	b.T.Helper()
	return b.Count(b.T, "SELECT COUNT(*) FROM postbox_messages WHERE topic = 'receipts'")
}

// Also covers F2.
func TestQueue_G4_effect_outgoing_message_and_removal_commit_together(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.DB.SetMaxOpenConns(1) // G10
		b := newQueueBench(t, database)
		outbox := b.outbox()
		b.Put("1")
		var run atomic.Int32
		b.Start(inboxtest.Quick(inboxtest.Transactional), func(msg *message.Message) error {
			if left := len(b.Effects()) + b.receipts(); left > 0 {
				t.Errorf("%d traces of a failed handler", left)
			}
			if err := b.Effect(msg.Context(), msg); err != nil {
				return err
			}
			out := message.NewMessage("receipt", nil)
			out.SetContext(msg.Context())
			if err := outbox.Publish("receipts", out); err != nil {
				return err
			}
			if run.Add(1) < 3 {
				return inboxtest.ErrHandler
			}
			if b.Pending() != 1 {
				t.Error("the message is gone before its handler has ended")
			}
			return nil
		})
		b.Drained()
		require.Equal(t, []string{"1"}, b.Effects())
		require.Equal(t, 1, b.receipts())
		require.EqualValues(t, 3, run.Load())
		require.Equal(t, []string{inboxtest.ErrHandler.Error(), inboxtest.ErrHandler.Error()}, b.Failures())
	})
}

// A handler that needs a transaction works in an inbox and in a transactional queue. In another
// queue the record of the failure has to say what to change.
func TestQueue_without_Transactional_the_failure_says_what_to_set(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		outbox := b.outbox()
		b.Put("handler", "publisher")
		b.Start(inboxtest.Quick(func(c *queue.Config) { c.Retry.Attempts = 1 }), func(msg *message.Message) error {
			if msg.UUID == "publisher" {
				out := message.NewMessage("receipt", nil)
				out.SetContext(msg.Context())
				return outbox.Publish("receipts", out)
			}
			if _, found := postbox.TxFromContext(msg.Context()); !found {
				return postbox.ErrNoTransaction
			}
			return nil
		})
		b.Drained()
		failures := b.Failures()
		require.Len(t, failures, 2)
		for _, failure := range failures {
			require.Contains(t, failure, postbox.ErrNoTransaction.Error())
			require.Contains(t, failure, "set Transactional in the queue.Config")
		}
	})
}

func TestQueue_without_Transactional_there_is_no_transaction(t *testing.T) {
	t.Parallel()
	b := newQueueBench(t, testdb.SQLite(t))
	b.Put("1")
	b.Start(inboxtest.Quick(nil), func(msg *message.Message) error {
		if _, found := postbox.TxFromContext(msg.Context()); found {
			t.Error("a transaction that nobody asked for")
		}
		return nil
	})
	b.Drained()
}

// A crash of the handler's process is, to the database, the end of its connection. So is what an
// operator does who ends it. Also covers G7 and F5.
func TestQueue_G4_a_connection_that_ends_under_a_handler_leaves_no_effect_and_counts_no_attempt(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.Put("1")
		var run atomic.Int32
		b.Start(inboxtest.Quick(inboxtest.Transactional), func(msg *message.Message) error {
			if left := len(b.Effects()); left > 0 {
				t.Errorf("%d traces of a lost transaction", left)
			}
			if err := b.Effect(msg.Context(), msg); err != nil || run.Add(1) > 1 {
				return err
			}
			tx, _ := postbox.TxFromContext(msg.Context())
			_, err := tx.ExecContext(msg.Context(), suicide(b.Dialect))
			if err == nil {
				t.Error("the connection lives")
			}
			return err
		})
		b.Drained()
		require.Equal(t, []string{"1"}, b.Effects())
		require.EqualValues(t, 2, run.Load())
		require.Empty(t, b.Failures())
		require.Empty(t, b.Dead())
	})
}

// suicide is a statement that ends its own connection.
func suicide(dialect postbox.Dialect) string {
	if dialect == postbox.MySQL {
		return "KILL CONNECTION_ID()"
	}
	return "SELECT pg_terminate_backend(pg_backend_pid())"
}

// Two processes handle the same message, since the first one lost its lease and does not know.
// Whoever ends first, one of them is rolled back. Also covers G6 and F10.
func TestQueue_G4_a_message_has_its_effect_once_although_the_lease_was_lost(t *testing.T) {
	t.Parallel()
	for _, zombieFirst := range []bool{false, true} {
		t.Run(fmt.Sprintf("the zombie ends first is %t", zombieFirst), func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				if database.Dialect == postbox.SQLite {
					return // it has one writer: nobody takes a lane while a handler has a transaction
				}
				b := newQueueBench(t, database)
				b.Put("a/1")
				var ended [2]chan struct{}
				var entered [2]chan struct{}
				var proceed [2]chan struct{}
				handler := func(who int) func(*message.Message) error {
					entered[who], proceed[who], ended[who] = make(chan struct{}), make(chan struct{}), make(chan struct{})
					enter, end := sync.OnceFunc(func() { close(entered[who]) }), sync.OnceFunc(func() { close(ended[who]) })
					return func(msg *message.Message) error { // again, where the database refuses one of two
						defer end()
						if err := b.Effect(msg.Context(), msg); err != nil {
							return err
						}
						enter()
						return inboxtest.Hold(msg.Context(), proceed[who])
					}
				}
				sleepy := inboxtest.Quick(inboxtest.Transactional)
				sleepy.Lease = time.Hour // and so it does not look after it
				zombie := b.Start(sleepy, handler(0))
				b.Await(entered[0], "the zombie's handler")
				b.Exec(t, "UPDATE postbox_members SET expires_at = 1")
				heir := b.another().Start(inboxtest.Quick(inboxtest.Transactional), handler(1))
				b.Await(entered[1], "the heir's handler")

				order := []int{1, 0}
				if zombieFirst {
					order = []int{0, 1}
				}
				for i, who := range order {
					close(proceed[who])
					b.Await(ended[who], "the end of a handler")
					if i == 0 && !zombieFirst {
						b.Drained()
					}
				}
				b.Drained()
				zombie.Stop()
				heir.Stop()
				require.Equal(t, []string{"a/1"}, b.Effects())
				require.Equal(t, 1, b.Count(t, "SELECT COUNT(*) FROM effects WHERE n = 2"), "the zombie's was rolled back")
				require.Empty(t, b.Failures())
			})
		})
	}
}

func TestQueue_G4_conflicts_run_again_and_count_no_attempt(t *testing.T) {
	t.Parallel()
	for _, open := range []func(*testing.T) *testdb.Database{testdb.Postgres, testdb.MySQL} {
		b := newQueueBench(t, open(t))
		b.Put("1")
		var run atomic.Int32
		b.Start(inboxtest.Quick(inboxtest.Transactional), func(msg *message.Message) error {
			if err := b.Effect(msg.Context(), msg); err != nil || run.Add(1) > 4 {
				return err
			}
			raise := "DO $$ BEGIN RAISE EXCEPTION 'Konflikt' USING ERRCODE = '40001'; END $$"
			if b.Dialect == postbox.MySQL {
				raise = "SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'Konflikt'"
			}
			tx, _ := postbox.TxFromContext(msg.Context())
			_, err := tx.ExecContext(msg.Context(), raise)
			return err
		})
		b.Drained()
		require.Equal(t, []string{"1"}, b.Effects())
		require.Empty(t, b.Failures())
	}
}

// What the server refuses at the commit is the handler's failure: it must count, or it would come
// for ever.
func TestQueue_G4_a_refused_commit_is_a_failure_of_the_handler(t *testing.T) {
	t.Parallel()
	b := newQueueBench(t, testdb.Postgres(t))
	b.Exec(t, "CREATE TABLE parents (id INTEGER PRIMARY KEY)")
	b.Exec(t, "CREATE TABLE children (parent INTEGER REFERENCES parents DEFERRABLE INITIALLY DEFERRED)")
	b.Put("1")
	b.Start(inboxtest.Quick(inboxtest.Transactional), func(msg *message.Message) error {
		tx, _ := postbox.TxFromContext(msg.Context())
		_, err := tx.ExecContext(msg.Context(), "INSERT INTO children VALUES (1)")
		return errors.Join(err, b.Effect(msg.Context(), msg))
	})
	b.Drained()
	require.Equal(t, []string{"1"}, b.Dead())
	require.Len(t, b.Failures(), 3)
	require.Contains(t, b.Failures()[0], "children")
	require.Empty(t, b.Effects())
}

// With a history, what is done is not gone.
// Also covers feature 2.3.
func TestQueue_history_commits_with_the_effect(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.Put("1", "2")
		var run atomic.Int32
		b.Start(inboxtest.Quick(func(c *queue.Config) { c.Transactional, c.History = true, time.Hour }), func(msg *message.Message) error {
			if err := b.Effect(msg.Context(), msg); err != nil || msg.UUID == "2" || run.Add(1) > 1 {
				return err
			}
			return inboxtest.ErrHandler
		})
		b.Drained()
		require.ElementsMatch(t, []string{"1", "2"}, b.Effects())
		require.Equal(t, []string{"1", "2"}, b.List("SELECT message_id FROM postbox_history ORDER BY message_id"))
		require.Equal(t, 1, b.Count(t, "SELECT COUNT(*) FROM postbox_history WHERE message_id = ? AND attempts = 2", []byte("1")))
	})
}
