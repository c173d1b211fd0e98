package forwarder_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/health"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A restart does not bring a broker back.
func TestForwarder_is_ready_while_its_broker_is_away(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	away := &publishing{calls: make(chan []*message.Message, 1000), do: func([]*message.Message) error { return syscall.ECONNREFUSED }}
	fwd := forwarderFor(t, database, away, nil)
	require.ErrorContains(t, health.IsReady(0, fwd), `outbox "outbox" has not been started`)
	inTx(t, database.DB, publisherFor(t, database, nil), "topic", newMessage("1", ""))
	run(t, fwd)
	away.called(t)
	require.Eventually(t, func() bool { return health.IsReady(0, fwd) == nil }, time.Minute, testdb.PollPause)
	require.NoError(t, fwd.Close())
	require.ErrorContains(t, health.IsReady(0, fwd), "has stopped")
	require.NoError(t, health.Alive(fwd))
}
