package middleware_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"
	wmmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
)

// Watermill's Timeout outside of the inbox ends the handler's context, and what fails after that is
// the handler.
func TestInbox_G7_deadline_of_the_delivery_is_an_attempt(t *testing.T) {
	t.Parallel()
	errLate := errors.New("too late")
	for name, end := range map[string]func(context.Context) error{
		"its own error": func(ctx context.Context) error { return errLate },
		"the context's": context.Context.Err,
		"none":          func(context.Context) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				inbox := inboxFor(t, database, nil)
				runs := 0
				// Long enough for the handler to begin also on a busy machine: a deadline before
				// that is no attempt.
				h := wmmiddleware.Timeout(500 * time.Millisecond)(inbox.Middleware(func(msg *message.Message) ([]*message.Message, error) {
					runs++
					produced, err := handler(succeed)(msg)
					if err != nil {
						return nil, err
					}
					<-msg.Context().Done()
					return produced, end(msg.Context())
				}))
				deliveries := 0
				for err := error(nil); deliveries == 0 || err != nil; deliveries++ {
					msg := message.NewMessage("1", nil)
					msg.SetContext(t.Context())
					_, err = h(msg)
					require.Less(t, deliveries, 10)
				}
				effects, receipts, dead := counts(t, database)
				require.Equal(t, []int{0, 0, 1}, []int{effects, receipts, dead})
				require.Equal(t, 3, database.Count(t, "SELECT COUNT(*) FROM postbox_failures"))
			})
		})
	}
}

// A rule may say that a message whose time is over is done. Then its deadline must not keep that
// from being stored: without it the handler would run at each delivery.
func TestInbox_G7_a_rule_makes_a_message_done_whose_time_is_over(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		inbox := inboxFor(t, database, func(c *middleware.InboxConfig) {
			c.MapError = func(*message.Message, error) error { return nil }
		})
		runs := 0
		for range 2 {
			// Over when the handler has begun, however busy the machine is.
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			_, err := inbox.Process(ctx, message.NewMessage("1", nil), func(msg *message.Message) ([]*message.Message, error) {
				runs++
				<-msg.Context().Done()
				return nil, msg.Context().Err()
			})
			cancel()
			require.NoError(t, err)
		}
		require.Equal(t, 1, runs)
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_claims"))
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters"))
	})
}

// A message that keeps conflicting with others is nacked, and nothing is recorded.
func TestInbox_G7_conflicts_are_nacked_without_a_failure(t *testing.T) {
	t.Parallel()
	raise := map[postbox.Dialect]string{
		postbox.PostgreSQL: "DO $$ BEGIN RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'; END $$",
		postbox.MySQL:      "SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'conflict'",
	}
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		inbox := inboxFor(t, database, nil)
		requireNotCounted(t, database, inbox, "conflict", func(msg *message.Message) ([]*message.Message, error) {
			tx, _ := postbox.TxFromContext(msg.Context())
			_, err := tx.ExecContext(msg.Context(), raise[database.Dialect])
			return nil, err
		})
		requireProcessed(t, inbox)
	})
}

// On SQLite, transactions wait for each other, and where that takes too long the file is busy.
func TestInbox_G7_a_busy_file_is_nacked_without_a_failure(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	impatient := *database
	impatient.DSN = strings.ReplaceAll(database.DSN, "busy_timeout(10000)", "busy_timeout(1)")
	impatient.DB = impatient.Open(t)
	inbox := inboxFor(t, &impatient, nil)
	other, err := database.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = other.Rollback() }()
	requireNotCounted(t, &impatient, inbox, "database is locked", func(*message.Message) ([]*message.Message, error) {
		t.Error("the handler runs")
		return nil, nil
	})
	require.NoError(t, other.Rollback())
	requireProcessed(t, inbox)
}

// requireNotCounted delivers a message more often than it has attempts.
func requireNotCounted(t *testing.T, database *testdb.Database, inbox *middleware.Inbox, says string, hindered message.HandlerFunc) {
	t.Helper()
	for range 5 {
		_, err := inbox.Process(t.Context(), message.NewMessage("1", nil), hindered)
		var failure *inboxstore.HandlerError
		require.ErrorContains(t, err, says)
		require.NotErrorAs(t, err, &failure)
	}
	require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_failures"))
}

func requireProcessed(t *testing.T, inbox *middleware.Inbox) {
	t.Helper()
	processed, err := inbox.Process(t.Context(), message.NewMessage("1", nil), handler(succeed))
	require.NoError(t, err)
	require.True(t, processed)
}
