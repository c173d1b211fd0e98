package pipeline_test

import (
	"context"
	"database/sql"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
)

// eachLoss runs a test on each server, reached through a pool of one connection, for each way to
// lose a COMMIT.
func eachLoss(t *testing.T, test func(t *testing.T, direct, wired *testdb.Database, w *wire, how loss)) {
	t.Helper()
	for _, how := range []loss{answerLost, commitLost} {
		t.Run(string(how), func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, direct *testdb.Database) {
				if direct.Dialect == postbox.SQLite {
					return // it has no connection to lose
				}
				direct.Migrate(t)
				direct.Exec(t, "CREATE TABLE business (id INTEGER NOT NULL)")
				wired, w := throughWire(t, direct)
				wired.DB.SetMaxOpenConns(1)
				test(t, direct, wired, w, how)
				require.Equal(t, 1, w.done())
			})
		})
	}
}

// rows is what there must be of a transaction after its COMMIT went wrong.
func (how loss) rows() int {
	if how == answerLost {
		return 1
	}
	return 0
}

// Nobody may guess: the caller is told that the outcome is unknown, and finds both the row and the
// message, or neither. Also covers F26.
func TestCommitUnknown_G1_InTx_returns_an_error_that_says_so(t *testing.T) {
	t.Parallel()
	eachLoss(t, func(t *testing.T, direct, wired *testdb.Database, w *wire, how loss) {
		outbox, err := forwarder.NewPublisher(wired.Postbox(), forwarder.PublisherConfig{}, nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, outbox.Close()) }()

		err = postbox.InTx(t.Context(), wired.DB, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO business (id) VALUES (1)"); err != nil {
				return err
			}
			msg := message.NewMessage(postbox.NewMessageID(), []byte("paid"))
			msg.SetContext(ctx)
			w.cutNext(how)
			return outbox.Publish("payments", msg)
		})
		require.ErrorIs(t, err, postbox.ErrCommitUnknown)
		require.Equal(t, how.rows(), direct.Count(t, "SELECT COUNT(*) FROM business"))
		require.Equal(t, how.rows(), direct.Count(t, "SELECT COUNT(*) FROM postbox_messages"))
	})
}

// An inbox can find out by itself: the claim tells. What was committed is acked and not done again;
// what was not is delivered again. Neither is a failure of the message. Also covers G7 and F26.
func TestCommitUnknown_G4_inbox_asks_the_database(t *testing.T) {
	t.Parallel()
	eachLoss(t, func(t *testing.T, direct, wired *testdb.Database, w *wire, how loss) {
		store, err := inboxstore.New(wired.Postbox(), inboxstore.Config{}, nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, store.Close()) }()
		outbox, err := forwarder.NewPublisher(wired.Postbox(), forwarder.PublisherConfig{}, nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, outbox.Close()) }()
		inbox, err := middleware.NewInbox(store, middleware.InboxConfig{
			Outbox: outbox, PublishTopic: "receipts", Retry: postbox.RetryProfile{Base: time.Millisecond, Cap: time.Millisecond},
		}, nil)
		require.NoError(t, err)

		// Publish returns when the message is acked.
		broker := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
		router, err := message.NewRouter(message.RouterConfig{}, nil)
		require.NoError(t, err)
		var runs atomic.Int32
		router.AddHandler("shop", "payments", broker, "", forwarder.KeepOpen(outbox), func(msg *message.Message) ([]*message.Message, error) {
			tx, ok := postbox.TxFromContext(msg.Context())
			if !ok {
				return nil, postbox.ErrNoTransaction
			}
			if _, err := tx.ExecContext(msg.Context(), "INSERT INTO business (id) VALUES (1)"); err != nil {
				return nil, err
			}
			if runs.Add(1) == 1 {
				w.cutNext(how)
			}
			return []*message.Message{message.NewMessage(postbox.NewMessageID(), nil)}, nil
		}).AddMiddleware(inbox.Middleware)
		ended := make(chan error, 1)
		go func() { ended <- router.Run(context.Background()) }()
		<-router.Running()

		msg := message.NewMessage(postbox.NewMessageID(), []byte("paid"))
		require.NoError(t, broker.Publish("payments", msg))
		require.EqualValues(t, 2-how.rows(), runs.Load(), "what was committed is not run again")
		require.NoError(t, broker.Publish("payments", msg))
		require.EqualValues(t, 2-how.rows(), runs.Load(), "a duplicate is known")

		require.NoError(t, router.Close())
		require.NoError(t, <-ended)
		require.Equal(t, 1, direct.Count(t, "SELECT COUNT(*) FROM business"))
		require.Equal(t, 1, direct.Count(t, "SELECT COUNT(*) FROM postbox_messages"), "the message that the handler returned")
		require.Equal(t, 1, direct.Count(t, "SELECT COUNT(*) FROM postbox_claims"))
		require.Zero(t, direct.Count(t, "SELECT COUNT(*) FROM postbox_failures"), "no attempt is counted")
	})
}
