package checker_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/proof/torture/checker"
	"github.com/postbox-go/watermill-postbox/proof/torture/history"
	"github.com/postbox-go/watermill-postbox/proof/torture/ledger"
)

// remains is a database in which Postbox itself has left one thing of each kind.
type remains struct {
	*testdb.Database
	t     *testing.T
	store *inboxstore.Store
}

func leave(t *testing.T) *remains {
	t.Helper()
	r := &remains{Database: testdb.Postgres(t).Migrate(t), t: t}
	require.NoError(t, ledger.Create(t.Context(), r.DB))
	store, err := inboxstore.New(r.Postbox(), inboxstore.Config{}, nil)
	require.NoError(t, err)
	r.store = store
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return r
}

func (r *remains) message(id string) *message.Message {
	msg := message.NewMessage(id, []byte("{}"))
	msg.Metadata.Set(postbox.MetadataOrderingKey, "k")
	return msg
}

// produce commits the messages with their intents.
func (r *remains) produce(ids ...string) {
	r.t.Helper()
	publisher, err := forwarder.NewPublisher(r.Postbox(), forwarder.PublisherConfig{}, nil)
	require.NoError(r.t, err)
	err = postbox.InTx(r.t.Context(), r.DB, func(ctx context.Context, tx *sql.Tx) error {
		for _, id := range ids {
			i := &ledger.Intent{Message: id, Key: "k", Topic: ledger.Orders, Plan: history.Poison, Emitter: "e", Parent: "p"}
			msg := r.message(id)
			msg.SetContext(ctx)
			if err := errors.Join(i.Write(ctx, tx), publisher.Publish(ledger.Orders, msg)); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(r.t, errors.Join(err, publisher.Close()))
}

func (r *remains) key(consumer, id string) inboxstore.Key {
	return inboxstore.Key{Consumer: consumer, Topic: ledger.Orders, MessageID: id}
}

func (r *remains) fail(consumer, id string) {
	r.t.Helper()
	_, err := r.store.RecordFailure(r.t.Context(), r.key(consumer, id), errors.New("planned"))
	require.NoError(r.t, err)
}

// within says that a time is of this test, give or take what two clocks of one machine differ.
func (r *remains) within(since time.Time, times ...time.Time) {
	r.t.Helper()
	for _, at := range times {
		require.WithinRange(r.t, at, since.Add(-time.Minute), time.Now().Add(time.Minute))
	}
}

func TestReadDatabase_reads_the_rows_that_Postbox_left(t *testing.T) {
	t.Parallel()
	r, since := leave(t), time.Now()
	id := postbox.NewMessageID()
	r.produce(id, "no uuid")
	err := postbox.InTx(t.Context(), r.DB, func(ctx context.Context, tx *sql.Tx) error {
		return ledger.Effect{
			Consumer: "scorer", Message: id, Key: "k", Turn: 1, Topic: ledger.Orders, Process: "worker-1/1",
		}.Write(ctx, tx)
	})
	require.NoError(t, err)
	r.fail("accountant", id)
	r.fail("accountant", "no uuid")
	require.NoError(t, r.store.Bury(t.Context(), r.key("accountant", id), r.message(id), allowed, errors.New("dead")))
	for _, message := range []string{id, "no uuid"} {
		_, err = r.store.Defer(t.Context(), "auditor", r.key("auditor", message), r.message(message))
		require.NoError(t, err)
	}
	r.Exec(t, "UPDATE postbox_messages SET state = 2, available_at = created_at WHERE topic = 'auditor'") // what is ready cannot be buried
	r.MoveWaiting(t)
	operator, err := admin.New(r.Postbox(), admin.Config{}, nil)
	require.NoError(t, err)
	first, _, err := operator.Messages(t.Context(), admin.Filter{Target: admin.Queue("auditor")})
	require.NoError(t, err)
	require.NoError(t, errorOf(operator.Bury(t.Context(), admin.Filter{Target: admin.Queue("auditor"), ID: first[0].ID}, "enough")))
	require.NoError(t, r.store.Close()) // its cleanup would remove what is as old as the next rows
	r.Exec(t, `INSERT INTO postbox_history (id, spool, topic, message_id, payload, metadata, created_at, done_at, attempts)
		SELECT 77, id, 'orders', 'done', '', '', 1000000, 2000000, 1 FROM postbox_spools WHERE name = 'outbox'`)
	r.Exec(t, `INSERT INTO postbox_claims (claimed_at, claim_key) VALUES (1, 'stale')`)
	r.Exec(t, `INSERT INTO postbox_lanes (spool, lane) SELECT id, 5 FROM postbox_spools WHERE name = 'outbox' ON CONFLICT DO NOTHING`)
	r.Exec(t, `INSERT INTO postbox_members (spool, holder, in_flight, expires_at) SELECT id, 'h', '{}', 3000000 FROM postbox_spools WHERE name = 'outbox'`)
	r.Exec(t, `UPDATE postbox_lanes SET holder = 'h', token = token + 1
		WHERE lane = 5 AND spool = (SELECT id FROM postbox_spools WHERE name = 'outbox')`)
	r.Exec(t, `UPDATE postbox_lanes SET holder = NULL
		WHERE lane = 5 AND spool = (SELECT id FROM postbox_spools WHERE name = 'outbox')`)
	r.Exec(t, `UPDATE postbox_messages SET available_at = 4611686018427387904 WHERE message_id = 'no uuid' AND topic = 'orders'`)

	found, err := checker.ReadDatabase(t.Context(), r.DB)
	require.NoError(t, err)
	r.within(since, found.ReadAt, found.OldestClaim, found.NewestClaim)

	require.Len(t, found.Intents, 2)
	require.Equal(t, ledger.Intent{
		Message: "no uuid", Key: "k", Turn: 2, Topic: ledger.Orders, Plan: history.Poison, Emitter: "e", Parent: "p",
	}, found.Intents[1].Intent)
	require.Len(t, found.Effects, 1)
	require.Equal(t, ledger.Effect{
		Consumer: "scorer", Message: id, Key: "k", Turn: 1, Topic: ledger.Orders, Process: "worker-1/1",
	}, found.Effects[0].Effect)
	r.within(since, found.Intents[0].At, found.Effects[0].At)

	require.Len(t, found.Pending, 3)
	outbox, queue := found.Pending[1], found.Pending[2]
	r.within(since, outbox.Created, queue.Created, queue.Available)
	require.Equal(t, checker.Pending{
		ID: outbox.ID, Topic: ledger.Orders, Message: "no uuid", Key: "k", Created: outbox.Created,
	}, outbox, "it is parked, so it has no time")
	require.Equal(t, checker.Pending{
		ID: queue.ID, Queue: "auditor", Topic: queue.Topic, Message: "no uuid", Key: "k", State: 2,
		Created: queue.Created, Available: queue.Available,
	}, queue)

	require.Len(t, found.Letters, 2)
	inbox, buried := found.Letters[0], found.Letters[1]
	r.within(since, inbox.Created, inbox.Died, buried.Created, buried.Died)
	require.Equal(t, []any{"accountant", id, "k", allowed, "dead"}, []any{inbox.Consumer, inbox.Message, inbox.Key, inbox.Attempts, inbox.Error})
	require.Equal(t, []any{"auditor", id, "k"}, []any{buried.Consumer, buried.Message, buried.Key})

	require.Len(t, found.Failures, 3)
	require.Equal(t, []any{1, "planned"}, []any{found.Failures[0].Attempt, found.Failures[0].Error})
	require.Equal(t, []checker.Kept{
		{ID: 77, Message: "done", Created: time.Unix(1, 0).UTC(), Done: time.Unix(2, 0).UTC()},
	}, found.Kept)

	require.Len(t, found.Leases, 2)
	taken, released := found.Leases[0], found.Leases[1]
	r.within(since, taken.At, released.At)
	require.Equal(t, checker.Lease{
		ID: taken.ID, Spool: "outbox", Lane: 5, Token: 1, Holder: "h", Until: time.Unix(3, 0).UTC(), At: taken.At,
	}, taken)
	require.Equal(t, checker.Lease{
		ID: released.ID, Spool: "outbox", Lane: 5, Token: 1, Before: time.Unix(3, 0).UTC(), At: released.At,
	}, released)

	counts := checker.Check(checker.Evidence{Flows: ledger.Flows, Database: found}).Counts
	require.Zero(t, counts.Strangers, "the checker names claims and stored messages as Postbox does")
	require.Equal(t, []int{2, 2, 3}, []int{counts.Intents, counts.Dead, counts.Pending})
}

func TestReadDatabase_says_what_it_could_not_read(t *testing.T) {
	t.Parallel()
	for damage, says := range map[string]string{
		"ALTER TABLE torture_intents DROP COLUMN at":                             `column "at" does not exist`,
		"ALTER TABLE postbox_failures ALTER COLUMN failed_at TYPE text":          "is no time in microseconds: SELECT id, subject",
		"ALTER TABLE postbox_failures ALTER COLUMN subject TYPE integer USING 1": "is no bytes: SELECT id, subject",
	} {
		t.Run(damage, func(t *testing.T) {
			t.Parallel()
			r := leave(t)
			r.fail("accountant", "m")
			r.Exec(t, damage)
			_, err := checker.ReadDatabase(t.Context(), r.DB)
			require.ErrorContains(t, err, "read the database after the run: ")
			require.ErrorContains(t, err, says)
		})
	}
	r := leave(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := checker.ReadDatabase(ctx, r.DB)
	require.ErrorIs(t, err, context.Canceled)
}

// errorOf is the error of an action, whatever it has changed.
func errorOf(_ int, err error) error { return err }
