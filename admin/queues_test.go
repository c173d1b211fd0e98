package admin_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// info returns what there is to know of the bench's outbox.
func (b *bench) info() admin.QueueInfo {
	b.Helper()
	queues, err := b.admin.Queues(b.Context())
	require.NoError(b, err)
	for _, q := range queues {
		if q.Target == b.target {
			return q
		}
	}
	require.Fail(b, "the outbox is not listed")
	return admin.QueueInfo{}
}

func TestTarget(t *testing.T) {
	t.Parallel()
	require.Equal(t, `outbox "a"`, admin.Outbox("a").String())
	require.Equal(t, `queue "a"`, admin.Queue("a").String())
	require.Equal(t, "a", admin.Queue("a").Name)
	require.Equal(t, "queue", admin.Queue("a").Kind)
	require.NotEqual(t, "queue", admin.Outbox("a").Kind)
	require.NotEqual(t, admin.Queue("a"), admin.Outbox("a"))
}

// Also covers feature W8.
func TestQueues_G9_counts_outboxes_and_queues(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		queues, err := b.admin.Queues(t.Context())
		require.NoError(t, err)
		require.Empty(t, queues)

		later := draft("later", "orders", "")
		later.Delay = time.Hour
		b.append(draft("ready", "orders", "a"), draft("failing", "orders", "b"), draft("parked", "refunds", "c"), later)
		b.exec("UPDATE postbox_messages SET created_at = created_at - 3600000000")
		b.exec(database.Bind("UPDATE postbox_messages SET state = 2, attempts = 1 WHERE message_id = ?"), []byte("failing"))
		b.exec(database.Bind("UPDATE postbox_messages SET state = 2, attempts = 2, available_at = available_at + ? WHERE message_id = ?"),
			int64(dialect.ParkDelay), []byte("parked"))
		database.MoveWaiting(t)
		queue := spool.New(b.statements, spool.QueuePrefix+"a queue")
		require.NoError(t, queue.Append(t.Context(), database.DB, spool.Run, []spool.Draft{draft("1", "a queue", "")}))
		b.buryInbox("of no outbox", 0)
		b.exec(database.Bind(b.insertHistory()), 1001, b.outboxID(), 1)
		b.exec(database.Bind(`INSERT INTO postbox_dead_letters (origin, subject, error, spool, consumer, topic, message_id,
			payload, metadata, created_at, died_at, attempts) SELECT 0, message_id, 'no', spool, '', topic, message_id, payload, metadata,
			created_at, created_at, 3 FROM postbox_messages WHERE message_id = ?`), []byte("ready"))
		b.join("alive", beat(map[string]int{"orders": 2, "refunds": 1}), time.Hour.Microseconds())
		b.join("alive too", `{}`, time.Hour.Microseconds())
		b.join("dead", beat(map[string]int{"orders": 100}), -1)

		queues, err = b.admin.Queues(t.Context())
		require.NoError(t, err)
		require.Len(t, queues, 3)
		require.InDelta(t, time.Hour, queues[0].OldestAge, float64(10*time.Minute))
		require.Less(t, queues[1].OldestAge, 10*time.Minute)
		require.InDelta(t, time.Hour, queues[0].DueAge, float64(10*time.Minute))
		require.Positive(t, queues[0].StuckAge, "no failure is recorded, so the time of writing counts")
		for i := range queues {
			queues[i].OldestAge, queues[i].DueAge, queues[i].StuckAge = 0, 0, 0
		}
		require.Equal(t, []admin.QueueInfo{
			{Target: b.target, Processes: 2, Pending: 4, Due: 2, InFlight: 3, Failing: 2, Parked: 1, Dead: 1, Done: 1, StuckKeys: 2},
			{Target: admin.Queue("a queue"), Pending: 1, Due: 1},
			{Target: admin.Inbox("billing"), Dead: 1, DeadLately: 1},
		}, queues)
	})
}

// insertHistory is a statement of a test: id, spool, time.
func (b *bench) insertHistory() string {
	return `INSERT INTO postbox_history (id, spool, topic, message_id, ordering_key, payload, metadata, created_at, done_at, attempts)
		VALUES (?, ?, 'orders', 'done', 'key', 'payload', '{}', 1, ?, 1)`
}

// everything calls each method that takes a target.
func everything(ctx context.Context, a *admin.Admin, target admin.Target) map[string]error {
	_, keys := a.Paused(ctx, target)
	_, _, messages := a.Messages(ctx, admin.Filter{Target: target})
	_, _, done := a.Messages(ctx, admin.Filter{Target: target, Status: admin.Done})
	_, one := a.Message(ctx, admin.Filter{Target: target, ID: 1})
	_, account := a.Account(ctx, target)
	return map[string]error{
		"Pause": a.Pause(ctx, admin.Filter{Target: target, All: true}), "Resume": a.Resume(ctx, admin.Filter{Target: target, All: true}),
		"PauseKey": a.Pause(ctx, admin.Filter{Target: target, Key: "key"}), "ResumeKey": a.Resume(ctx, admin.Filter{Target: target, Key: "key"}), "PausedKeys": keys,
		"ChangeSettings": storeSettings(ctx, a, target, admin.Settings{Attempts: 3}),
		"Messages":       messages, "Done": done, "Message": one, "Account": account,
		"RunNow": errorOf(a.Reschedule(ctx, admin.Filter{Target: target, ID: 1}, time.Time{})), "Reschedule": errorOf(a.Reschedule(ctx, admin.Filter{Target: target, ID: 1}, time.Now())), "Bury": errorOf(a.Bury(ctx, admin.Filter{Target: target, ID: 1}, "no")),
	}
}

func TestTarget_that_is_unknown_is_an_error_that_lists_the_known_ones(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		for name, err := range everything(t.Context(), b.admin, admin.Queue("fraud")) {
			require.ErrorIs(t, err, admin.ErrNotFound, name)
			require.ErrorContains(t, err, `queue "fraud": not found: there is no outbox and no queue yet`, name)
		}
		b.outboxID()
		_, err := spool.New(b.statements, spool.QueuePrefix+"fraud checks").Open(t.Context(), database.DB)
		require.NoError(t, err)
		for name, err := range everything(t.Context(), b.admin, admin.Queue("fraud")) {
			require.ErrorIs(t, err, admin.ErrNotFound, name)
			require.ErrorContains(t, err, `queue "fraud": not found: there are `+b.target.String()+`, queue "fraud checks"`, name)
		}
	})
}

func TestAdmin_says_that_the_tables_are_missing(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		if database.Dialect == postbox.SQLite {
			return // which has no code for it
		}
		a, err := admin.New(database.Postbox(), admin.Config{}, nil)
		require.NoError(t, err)
		for name, err := range everything(t.Context(), a, admin.Outbox("outbox")) {
			require.ErrorContains(t, err, "postbox.Migrate", name)
		}
	})
}

// The tables are named in each statement: with a prefix, and where there are any in a schema, none
// may be forgotten. One connection is enough. Also covers feature W15.
func TestAdmin_G10_works_with_a_prefix_and_a_schema(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		shop := postbox.Database{Dialect: database.Dialect, Prefix: "shop_"}
		if database.Dialect == postbox.PostgreSQL {
			require.NoError(t, database.DB.QueryRowContext(t.Context(), "SELECT current_schema()").Scan(&shop.Schema))
			require.NoError(t, database.DB.Close())
			database.DSN = withoutSearchPath(t, database.DSN)
			database.DB = database.Open(t)
		}
		database.DB.SetMaxOpenConns(1)
		shop.DB = database.DB
		require.NoError(t, postbox.Migrate(t.Context(), shop))
		statements, err := spool.StatementsIn(shop)
		require.NoError(t, err)
		later := draft("1", "orders", "key")
		later.Delay = time.Hour
		require.NoError(t, spool.New(statements, "outbox").Append(t.Context(), database.DB, spool.Run, []spool.Draft{later}))

		a, err := admin.New(shop, admin.Config{}, nil)
		require.NoError(t, err)
		messages, _, err := a.Messages(t.Context(), admin.Filter{Target: admin.Outbox("outbox")})
		require.NoError(t, err)
		require.Len(t, messages, 1)
		for name, err := range everything(t.Context(), a, admin.Outbox("outbox")) {
			if name == "Bury" || name == "RunNow" || name == "Reschedule" || name == "Message" { // of message 1, which may be gone
				continue
			}
			require.NoError(t, err, name)
		}
		queues, err := a.Queues(t.Context())
		require.NoError(t, err)
		require.Len(t, queues, 1)
	})
}

// Messages are done, fail, die, are requeued and buried: at each moment the account adds up.
func TestAccount_G9_adds_up_while_everything_moves(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		const messages = 120
		b.append(numbered(messages)...)
		account, err := b.admin.Account(t.Context(), b.target)
		require.NoError(t, err)
		require.Equal(t, admin.Account{Written: messages, Pending: messages}, account)

		var turn atomic.Int32
		h := newHandler(func(*spool.Message) error {
			switch turn.Add(1) % 4 {
			case 0:
				return postbox.Permanent(errBroker)
			case 1:
				return errBroker
			}
			return nil
		})
		b.drainWith(database.DB, h, func(c *drain.Config) { c.History, c.BatchSize = time.Hour, 3 })
		moved := map[admin.Account]bool{}
		b.eventually(func() bool {
			account, err := b.admin.Account(t.Context(), b.target)
			require.NoError(t, err)
			require.Equal(t, messages, account.Written, account)
			require.Equal(t, messages, account.Pending+account.Done+account.Dead)
			moved[account] = true
			_, err = b.admin.Requeue(t.Context(), admin.Filter{All: true, Limit: 3}, admin.Again{})
			require.NoError(t, err)
			return account.Done == messages
		}, "all messages are done")
		require.Greater(t, len(moved), 3, "it was looked at while they moved")
		require.Len(t, h.counts(), messages)
	})
}

func TestAccount_G9_adds_up_without_history_and_with_resolved_dead_letters(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(draft("1", "orders", ""), draft("2", "orders", ""))
		b.bury()
		require.NoError(t, errorOf(b.admin.Resolve(t.Context(), admin.Filter{ID: b.list(admin.Filter{})[0].ID}, "seen")))
		b.buryInbox("of no outbox", 0)
		b.append(draft("3", "orders", ""))
		_, stop := b.drain(func(*spool.Message) error { return nil })
		b.eventually(func() bool { return b.pending() == 0 }, "it is done")
		stop()
		b.append(draft("4", "orders", ""))
		account, err := b.admin.Account(t.Context(), b.target)
		require.NoError(t, err)
		require.Equal(t, admin.Account{Written: 3, Pending: 1, Dead: 1, Resolved: 1}, account)
	})
}
