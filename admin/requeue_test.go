package admin_test

import (
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/keyhash"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestRequeue_gives_a_message_of_the_outbox_all_its_attempts_again(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(draft("one", "orders", "key"))
		b.bury()
		require.NoError(t, errorOf(b.admin.Requeue(t.Context(), admin.Filter{ID: b.only(admin.Filter{}).ID}, admin.Again{})))
		require.Zero(t, b.dead())

		var seen atomic.Pointer[spool.Message]
		h, _ := b.drain(func(m *spool.Message) error {
			if m.Attempts == 0 {
				return errBroker // the first of two
			}
			seen.Store(m)
			return nil
		})
		b.eventually(func() bool { return b.pending() == 0 }, "it is handled")
		require.Equal(t, map[string]int{"one": 1}, h.counts())
		want, got := draft("one", "orders", "key"), seen.Load()
		require.Equal(t, want, spool.Draft{
			Topic: got.Topic, MessageID: got.MessageID, Key: got.Key, Payload: got.Payload, Metadata: got.Metadata,
		})
		require.Equal(t, keyhash.Lane(keyhash.Of("key"), lanes), got.Ref.Lane, "its key's lane")
	})
}

func TestRequeue_delivers_a_message_to_its_inbox_again(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		subject := b.buryInbox("one", b.outboxID())
		letter, err := b.admin.DeadLetter(t.Context(), b.only(admin.Filter{Consumer: "billing"}).ID)
		require.NoError(t, err)
		require.Len(t, letter.Failures, 2)
		require.Equal(t, b.outbox.Name(), letter.Target.Name)
		require.NoError(t, errorOf(b.admin.Requeue(t.Context(), admin.Filter{ID: letter.ID}, admin.Again{})))

		require.Zero(t, b.dead())
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_claims"), "the next delivery is a first one")
		var last int
		require.NoError(t, database.DB.QueryRowContext(t.Context(), b.statements.LastAttempt, subject).Scan(&last))
		require.Zero(t, last, "attempts count from here")
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_failures WHERE error = 'requeued'"))
		h, _ := b.drain(func(m *spool.Message) error {
			if m.Topic != "orders" || m.Key != "key" || m.Metadata["bytes"] != "\x00\xff" {
				return postbox.Permanent(errBroker)
			}
			return nil
		})
		b.eventually(func() bool { return b.pending() == 0 }, "it is published again")
		require.Equal(t, map[string]int{"one": 1}, h.counts())
	})
}

func TestRequeue_keeps_dead_letters_that_cannot_be_requeued(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.buryInbox("no outbox", 0)
		b.buryInbox("lost outbox", 4711)
		b.append(draft("broken", "orders", ""), draft("fine", "orders", ""))
		b.bury()
		b.exec(database.Bind("UPDATE postbox_dead_letters SET metadata = ? WHERE message_id = ?"), []byte("{"), []byte("broken"))

		operator, err := admin.New(database.Postbox(), admin.Config{Outbox: "never made"}, nil)
		require.NoError(t, err)
		for id, reason := range map[string]string{
			"no outbox": `no outbox "never made"`, "lost outbox": "4711", "broken": "metadata",
		} {
			_, err := operator.Requeue(t.Context(), admin.Filter{ID: b.only(admin.Filter{MessageID: id}).ID}, admin.Again{})
			require.ErrorIs(t, err, admin.ErrRefused)
			require.ErrorContains(t, err, reason)
		}
		require.Equal(t, 4, b.dead())
		require.Equal(t, 2, database.Count(t, "SELECT COUNT(*) FROM postbox_claims"))
		letter, err := b.admin.DeadLetter(t.Context(), b.only(admin.Filter{MessageID: "broken"}).ID)
		require.NoError(t, err, "it can be looked at")
		require.Nil(t, letter.Metadata)
		require.Equal(t, "payload of broken", string(letter.Payload))

		requeued, err := operator.Requeue(t.Context(), admin.Filter{All: true}, admin.Again{})
		require.ErrorIs(t, err, admin.ErrRefused)
		require.Equal(t, 1, requeued, "the others do not wait for them")
	})
}

func TestRequeue_F22_one_of_many_operators_wins(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		const letters, operators = 20, 6
		b.append(numbered(letters / 2)...)
		b.bury()
		for i := range letters / 2 {
			b.buryInbox(fmt.Sprintf("inbox %d", i), b.outboxID())
		}
		open := b.list(admin.Filter{})
		require.Len(t, open, letters)

		var won, lost atomic.Int32
		var group sync.WaitGroup
		start := make(chan struct{})
		failures := make(chan error, letters*operators)
		for range operators {
			operator := b.operator(database)
			group.Go(func() {
				<-start
				for _, letter := range open {
					if _, err := operator.Requeue(t.Context(), admin.Filter{ID: letter.ID}, admin.Again{}); err != nil {
						lost.Add(1)
						failures <- err
					} else {
						won.Add(1)
					}
				}
			})
		}
		close(start)
		group.Wait()
		close(failures)
		for err := range failures {
			require.ErrorIs(t, err, admin.ErrNotFound)
		}
		require.EqualValues(t, letters, won.Load())
		require.EqualValues(t, letters*(operators-1), lost.Load())
		require.Equal(t, letters, b.pending(), "each message is there once")
		require.Zero(t, b.dead())
	})
}

func TestRequeue_F22_exactly_one_of_requeue_resolve_and_delete_wins(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(numbered(20)...)
		b.bury()
		for _, letter := range b.list(admin.Filter{}) {
			var all sync.WaitGroup
			outcomes := make([]error, 3)
			all.Go(func() { _, outcomes[0] = b.admin.Requeue(t.Context(), admin.Filter{ID: letter.ID}, admin.Again{}) })
			all.Go(func() { _, outcomes[1] = b.admin.Resolve(t.Context(), admin.Filter{ID: letter.ID}, "by hand") })
			all.Go(func() { _, outcomes[2] = b.admin.Delete(t.Context(), admin.Filter{ID: letter.ID}) })
			all.Wait()
			if outcomes[0] == nil {
				require.ErrorIs(t, outcomes[1], admin.ErrNotFound)
				require.ErrorIs(t, outcomes[2], admin.ErrNotFound)
			} else {
				require.NoError(t, outcomes[2], "a letter can be deleted also after it was resolved")
			}
		}
		require.Zero(t, b.dead())
	})
}

// Messages die while operators requeue all dead letters, over and over: at each moment a message is
// in the outbox or a letter, and in the end each was handled once. Also covers F22.
func TestRequeueAll_G9_adds_up_while_messages_die(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		const messages = 30
		b.append(numbered(messages)...)
		var healthy atomic.Bool
		h, _ := b.drain(func(*spool.Message) error {
			if healthy.Load() {
				return nil
			}
			return postbox.Permanent(errBroker)
		})
		var requeued atomic.Int32
		var operators sync.WaitGroup
		errs := make([]error, 3)
		for i := range errs {
			operator := b.operator(database)
			operators.Go(func() {
				for errs[i] == nil && requeued.Load() < 3*messages {
					var n int
					n, errs[i] = operator.Requeue(t.Context(), admin.Filter{Topic: "orders"}, admin.Again{})
					requeued.Add(int32(n)) //nolint:gosec // few
				}
			})
		}
		operators.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
		healthy.Store(true)
		b.eventually(func() bool {
			_, err := b.admin.Requeue(t.Context(), admin.Filter{All: true}, admin.Again{})
			require.NoError(t, err)
			return b.pending() == 0 && b.dead() == 0
		}, "all messages are handled")
		require.Len(t, h.counts(), messages)
		for id, n := range h.counts() {
			require.Equal(t, 1, n, id)
		}
	})
}

func TestRequeueAll_by_filter_and_limit_over_many_pages(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(draft("other", "refunds", ""))
		b.bury()
		const letters = 230 // more than two pages
		outbox := b.outboxID()
		require.NoError(t, spool.InTx(t.Context(), database.DB, b.statements, func(tx *sql.Tx) error {
			for i := range letters {
				letter := dialect.Letter{
					Subject: fmt.Appendf(nil, "claim %d", i), Spool: outbox, Topic: "orders", MessageID: fmt.Appendf(nil, "%d", i),
					Payload: []byte{}, Metadata: []byte("{}"), Error: "no",
				}
				query := b.statements.InsertDeadLetter(dialect.InboxLetter{Letter: letter, Consumer: "billing", Source: "orders", CarriedID: letter.MessageID, Attempts: 1})
				if _, err := tx.ExecContext(t.Context(), b.statements.Claim, letter.Subject); err != nil {
					return err
				}
				if err := spool.Run(t.Context(), tx, query); err != nil {
					return err
				}
			}
			return nil
		}))

		requeued, err := b.admin.Requeue(t.Context(), admin.Filter{Topic: "orders", Limit: 7}, admin.Again{})
		require.NoError(t, err)
		require.Equal(t, 7, requeued)
		require.Equal(t, 7, b.pending())

		requeued, err = b.admin.Requeue(t.Context(), admin.Filter{Topic: "orders"}, admin.Again{})
		require.NoError(t, err)
		require.Equal(t, letters-7, requeued)
		require.Equal(t, "other", b.only(admin.Filter{}).MessageID)
		require.Greater(t, database.Count(t, "SELECT COUNT(DISTINCT lane) FROM postbox_messages"), 1,
			"messages without a key are spread")

		_, err = b.admin.Requeue(t.Context(), admin.Filter{Resolved: "any"}, admin.Again{})
		require.ErrorIs(t, err, admin.ErrRefused)
	})
}

func TestRequeueAll_ends_although_everything_dies_again(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(numbered(120)...)
		_, stop := b.drain(func(*spool.Message) error { return postbox.Permanent(errBroker) })
		b.eventually(func() bool { return b.pending() == 0 }, "all messages are dead")
		requeued, err := b.admin.Requeue(t.Context(), admin.Filter{All: true}, admin.Again{})
		require.NoError(t, err)
		require.Equal(t, 120, requeued)
		b.eventually(func() bool { return b.pending() == 0 && b.dead() == 120 }, "they are dead again")
		stop()
	})
}

func TestRequeue_G10_one_connection(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(draft("one", "orders", ""), draft("two", "orders", ""))
		b.bury()
		b.buryInbox("three", b.outboxID())
		database.DB.SetMaxOpenConns(1)
		_, err := b.admin.DeadLetter(t.Context(), b.only(admin.Filter{MessageID: "one"}).ID)
		require.NoError(t, err)
		require.NoError(t, errorOf(b.admin.Requeue(t.Context(), admin.Filter{ID: b.only(admin.Filter{MessageID: "one"}).ID}, admin.Again{})))
		requeued, err := b.admin.Requeue(t.Context(), admin.Filter{All: true}, admin.Again{})
		require.NoError(t, err)
		require.Equal(t, 2, requeued)
		_, err = b.admin.Account(t.Context(), b.target)
		require.NoError(t, err)
	})
}

func TestRequeue_wakes_the_drainers(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(draft("one", "orders", ""), draft("two", "orders", ""))
		b.bury()
		h, _ := b.drainPolling(time.Hour, time.Hour, func(*spool.Message) error { return nil }) // it has looked once
		letters := b.list(admin.Filter{})
		require.NoError(t, errorOf(b.admin.Requeue(t.Context(), admin.Filter{ID: letters[0].ID}, admin.Again{})))
		b.eventually(func() bool { return h.counts()[letters[0].MessageID] == 1 }, "it is handled")
		_, err := b.admin.Requeue(t.Context(), admin.Filter{All: true}, admin.Again{})
		require.NoError(t, err)
		b.eventually(func() bool { return h.counts()[letters[1].MessageID] == 1 }, "it is handled")
	})
}
