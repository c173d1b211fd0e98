package middleware_test

import (
	"fmt"
	"net"
	"testing"

	"github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/internal/verdict"
	"github.com/postbox-go/watermill-postbox/middleware"
)

// evilErrors are errors of which a method panics, as those of nil pointers do.
var evilErrors = map[string]error{
	"opError":       (*net.OpError)(nil),
	"pqError":       (*pq.Error)(nil),
	"wrapped":       fmt.Errorf("wrapped: %w", (*pq.Error)(nil)),
	"nilPermanent":  (*verdict.PermanentError)(nil),
	"nilRetryAfter": (*verdict.RetryAfterError)(nil),
}

// deadAfterThree delivers a message for each of the errors until it is dead.
func deadAfterThree(t *testing.T, inbox *middleware.Inbox) {
	t.Helper()
	for id, evil := range evilErrors {
		for attempt := 1; attempt <= 3; attempt++ {
			msg := message.NewMessage(id, nil)
			processed, err := inbox.Process(t.Context(), msg, func(*message.Message) ([]*message.Message, error) { return nil, evil })
			require.False(t, processed)
			if attempt < 3 {
				require.Error(t, err, id)
			} else {
				require.NoError(t, err, id)
			}
		}
	}
}

func TestInbox_G7_an_error_that_panics_is_a_failed_attempt(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		deadAfterThree(t, inboxFor(t, database, nil))
		_, _, dead := counts(t, database)
		require.Equal(t, len(evilErrors), dead)
		require.Equal(t, 3*len(evilErrors), database.Count(t, "SELECT COUNT(*) FROM postbox_failures"))
	})
}

func TestInbox_G7_an_error_that_panics_is_a_failed_attempt_in_any_store(t *testing.T) {
	t.Parallel()
	config := middleware.InboxConfig{Consumer: "c", Topic: "t", Retry: postbox.RetryProfile{Attempts: 3, Base: 1, Cap: 1}}
	inbox, err := middleware.NewInbox(newAnyStore(), config, nil)
	require.NoError(t, err)
	deadAfterThree(t, inbox)
}

func TestInbox_an_error_of_WithoutID_that_panics_is_readable(t *testing.T) {
	t.Parallel()
	nameless := func(*message.Message) (string, error) { return "", (*pq.Error)(nil) }
	config := middleware.InboxConfig{Consumer: "c", Topic: "t", WithoutID: nameless, Retry: postbox.RetryProfile{Attempts: 3, Base: 1, Cap: 1}}
	inbox, err := middleware.NewInbox(newAnyStore(), config, nil)
	require.NoError(t, err)
	_, err = inbox.Process(t.Context(), message.NewMessage("", nil), nil)
	require.ErrorContains(t, err, "panic: ")

	deferral, err := middleware.DeferWith(newAnyStore(), "q", middleware.DeferConfig{WithoutID: nameless, Retry: config.Retry})
	require.NoError(t, err)
	_, err = deferral(nil)(message.NewMessage("", nil))
	require.ErrorContains(t, err, "panic: ")
}
