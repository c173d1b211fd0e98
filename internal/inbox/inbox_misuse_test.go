package inbox_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
)

// inbox returns an inbox with three attempts and no pauses.
func (b *queueBench) inbox() *middleware.Inbox {
	b.T.Helper()
	inbox, err := middleware.NewInbox(b.Store, middleware.InboxConfig{
		Consumer: "billing", Retry: postbox.RetryProfile{Attempts: 3, Base: time.Nanosecond, Cap: time.Nanosecond},
	}, nil)
	require.NoError(b.T, err)
	return inbox
}

// deliveries are more than a message can need: three attempts, and one that is forgiven.
const deliveries = 10

// deliver delivers a message until it is acked, and returns the error of a last delivery that was
// not.
func deliver(ctx context.Context, inbox *middleware.Inbox, id string, handle func(ctx context.Context, msg *message.Message) error) (err error) {
	for range deliveries {
		_, err = inbox.Process(ctx, message.NewMessage(id, nil), func(msg *message.Message) ([]*message.Message, error) {
			return nil, handle(msg.Context(), msg)
		})
		if err == nil {
			return nil
		}
	}
	return err
}

// Whatever a handler does to the transaction of its inbox is an attempt of its message, which is
// recorded and, in the end, dead. If the handler commits, its message is a duplicate from then on.
func TestInbox_G7_a_handler_that_loses_its_transaction_has_failed(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		inbox := b.inbox()
		all := slices.DeleteFunc(misuses(database.Dialect), func(m misuse) bool {
			return m.name == "role" || m.name == "read-only" // nothing that comes after it needs a right, or writes
		})
		handle := b.misusing(all)
		var wg sync.WaitGroup
		for _, m := range all { // at once, since a server may go on with a statement, and its transaction has the claim meanwhile
			wg.Go(func() {
				if err := deliver(t.Context(), inbox, m.name, handle); err != nil {
					t.Errorf("%s is delivered for ever: %s", m.name, err)
				}
			})
		}
		wg.Wait()
		var committed []string
		for _, m := range all {
			if m.commits {
				committed = append(committed, m.name)
				require.Equal(t, 1, inboxtest.Count(b.Effects(), m.name), m.name)
			}
		}
		b.requireBlamed(slices.DeleteFunc(all, func(m misuse) bool { return m.commits }), nil)
		others := b.List("SELECT error FROM postbox_failures WHERE subject NOT IN (SELECT subject FROM postbox_dead_letters)")
		require.Len(t, others, len(committed), "%v: %v", committed, others)
		for _, text := range others {
			require.Contains(t, text, "ended before the handler")
		}
	})
}

// A limit of the role ends a statement of the handler.
func TestInbox_G7_a_statement_of_the_handler_that_the_server_ended_is_its_failure(t *testing.T) {
	t.Parallel()
	says := map[postbox.Dialect]string{postbox.PostgreSQL: "statement timeout", postbox.MySQL: "max_statement_time"}
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		require.NoError(t, deliver(t.Context(), b.inbox(), "slow", func(ctx context.Context, msg *message.Message) error {
			if err := b.Effect(ctx, msg); err != nil {
				return err
			}
			tx, _ := postbox.TxFromContext(ctx)
			return overrun(ctx, tx, database.Dialect)
		}))
		require.Equal(t, []string{"slow"}, b.Dead())
		require.Empty(t, b.Effects())
		require.Len(t, b.Failures(), 3)
		for _, text := range b.Failures() {
			require.Contains(t, text, says[database.Dialect])
		}
	})
}
