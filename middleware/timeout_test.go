package middleware_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"
	wmmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Watermill's Timeout outside of the inbox ends the handler's context, and what fails after that is the handler.
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
				h := wmmiddleware.Timeout(50 * time.Millisecond)(inbox.Middleware(func(msg *message.Message) ([]*message.Message, error) {
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

// A message that keeps conflicting with others is nacked, and nothing is recorded.
func TestInbox_G7_conflicts_are_nacked_without_a_failure(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	inbox := inboxFor(t, database, nil)
	conflict := func(msg *message.Message) ([]*message.Message, error) {
		tx, _ := postbox.TxFromContext(msg.Context())
		_, err := tx.ExecContext(msg.Context(), "DO $$ BEGIN RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'; END $$")
		return nil, err
	}
	for range 5 { // more than it has attempts
		_, err := inbox.Process(t.Context(), message.NewMessage("1", nil), conflict)
		var failure *inboxstore.HandlerError
		require.ErrorContains(t, err, "conflict")
		require.NotErrorAs(t, err, &failure)
	}
	require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_failures"))
	processed, err := inbox.Process(t.Context(), message.NewMessage("1", nil), handler(succeed))
	require.NoError(t, err)
	require.True(t, processed)
}
