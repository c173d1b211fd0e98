package forwarder_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// silence is longer than a statement may take, and than the drivers and Postbox need to find one connection after the
// other silent.
const silence = 3 * time.Minute

// startSilent runs a forwarder through a network, publishes a message, and makes all connections silent.
func startSilent(t *testing.T, database *testdb.Database) (to *broker, publish func(id string), stop func()) {
	t.Helper()
	database.Migrate(t)
	publisher := publisherFor(t, database, nil)
	publish = func(id string) {
		require.NoError(t, forwarder.InTx(t.Context(), database.DB, func(ctx context.Context, _ *sql.Tx) error {
			msg := message.NewMessage(id, nil)
			msg.SetContext(ctx)
			return publisher.Publish("orders", msg)
		}))
	}
	db, network := database.OpenThroughNetwork(t)
	to = &broker{}
	f, err := forwarder.New(database.On(db), to, forwarder.Config{Lanes: 8, CloseTimeout: time.Second}, watermill.NopLogger{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	stop = func() {
		cancel()
		select {
		case err := <-ended:
			require.NoError(t, err)
		case <-time.After(silence):
			require.Fail(t, "Run did not return after its context had ended")
		}
	}
	publish("before")
	require.Eventually(t, func() bool { return len(to.ids()) == 1 }, patience, testdb.PollPause)
	network.Silence()
	return to, publish, stop
}

// The machine of the database disappears without a word. No driver learns of it, and lib/pq does not end a statement with its context.
func TestForwarder_G12_stops_although_its_connections_are_silent(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		_, _, stop := startSilent(t, database)
		stop()
	})
}

// As above, and another server answers under the same address.
func TestForwarder_G7_goes_on_although_its_connections_are_silent(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		to, publish, stop := startSilent(t, database)
		publish("after")
		require.Eventually(t, func() bool { return len(to.ids()) == 2 }, silence, testdb.PollPause)
		stop()
	})
}
