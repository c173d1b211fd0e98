package forwarder_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/components/delay"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// due returns when the only message may be published, and how long that is after it was stored.
func due(t *testing.T, database *testdb.Database) (at time.Time, after time.Duration) {
	t.Helper()
	var available, created int64
	require.NoError(t, database.DB.QueryRowContext(t.Context(), "SELECT available_at, created_at FROM postbox_messages").Scan(&available, &created))
	return time.UnixMicro(available), time.Duration(available-created) * time.Microsecond
}

// The delay of a context, as a CQRS bus hands it on, counts like that of the message, which goes
// before it.
func TestPublisher_applies_the_delay_of_the_context(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		publisher := publisherFor(t, database, nil)
		for _, ofMessage := range []time.Duration{0, 3 * time.Hour} {
			database.Exec(t, "DELETE FROM postbox_messages")
			msg := newMessage("1", "")
			if ofMessage > 0 {
				delay.Message(msg, delay.For(ofMessage))
			}
			before := len(msg.Metadata)
			require.NoError(t, postbox.InTx(t.Context(), database.DB, func(ctx context.Context, _ *sql.Tx) error {
				msg.SetContext(delay.WithContext(ctx, delay.For(2*time.Hour)))
				return publisher.Publish("topic", msg)
			}))
			_, after := due(t, database)
			require.InDelta(t, max(ofMessage, 2*time.Hour), after, float64(time.Second))
			require.Len(t, msg.Metadata, before, "the message of the caller is left alone")
		}
		inTx(t, database.DB, publisher, "topic", newMessage("2", ""))
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE message_id = ? AND state = 0", []byte("2")),
			"no message has the delay of the one before it")
	})
}

// Watermill writes a time also as what is left until then by the clock of the process, which is an
// hour off here.
func TestPublisher_G11_delays_by_the_clock_of_the_database(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		publisher := publisherFor(t, database, nil)
		until := time.Now().Add(2 * time.Hour)
		for name, off := range map[string]time.Duration{"right": 0, "fast": time.Hour, "slow": -time.Hour} {
			database.Exec(t, "DELETE FROM postbox_messages")
			msg := newMessage("1", "")
			began := time.Now()
			delay.Message(msg, delay.Until(until))
			left, err := time.ParseDuration(msg.Metadata.Get(delay.DelayedForKey))
			require.NoError(t, err)
			msg.Metadata.Set(delay.DelayedForKey, (left - off).String())
			inTx(t, database.DB, publisher, "topic", msg)
			spent := time.Since(began)
			at, _ := due(t, database)
			if off == 0 { // to the microsecond, and what passed since Until was called
				require.WithinRange(t, at, until.Truncate(time.Microsecond), until.Add(spent+time.Second), name)
				continue
			}
			require.WithinDuration(t, until, at, spent+time.Second, name)
		}
	})
}
