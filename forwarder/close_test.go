package forwarder_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// publishing is a publisher that does as the test says with each call.
type publishing struct {
	calls chan []*message.Message
	do    func(messages []*message.Message) error
}

func (p *publishing) Publish(_ string, messages ...*message.Message) error {
	p.calls <- messages
	return p.do(messages)
}

func (p *publishing) Close() error { return nil }

// runWith starts a forwarder with a short time for its calls after Close, and with one call at a
// time.
func (p *publishing) runWith(t *testing.T, database *testdb.Database, messages ...*message.Message) *forwarder.Forwarder {
	t.Helper()
	database.Migrate(t)
	inTx(t, database.DB, publisherFor(t, database, nil), "topic", messages...)
	fwd := forwarderFor(t, database, p, func(c *forwarder.Config) {
		c.CloseTimeout, c.Concurrency, c.BatchSize = 50*time.Millisecond, 1, len(messages)
	})
	run(t, fwd)
	return fwd
}

// called waits for a call.
func (p *publishing) called(t *testing.T) []*message.Message {
	t.Helper()
	select {
	case messages := <-p.calls:
		return messages
	case <-time.After(patience):
		require.FailNow(t, "nothing is published")
		return nil
	}
}

// Many publishers know nothing of contexts, and may wait for their broker for ever.
// Also covers F24.
func TestForwarder_G12_close_does_not_wait_for_a_publisher_that_never_returns(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	proceed := make(chan struct{})
	to := &publishing{calls: make(chan []*message.Message, 10), do: func([]*message.Message) error {
		<-proceed
		return nil
	}}
	fwd := to.runWith(t, database, newMessage("1", "a"))
	to.called(t)
	closed := make(chan error, 1)
	go func() { closed <- fwd.Close() }()
	select {
	case err := <-closed:
		require.NoError(t, err)
	case <-time.After(patience):
		close(proceed)
		require.FailNow(t, "Close does not return")
	}
	close(proceed)
	eventually(t, func() bool { return len(fwd.InFlight()) == 0 }, "it returns, too late")
	require.Equal(t, 1, pending(t, database), "it is published again")
	require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_lanes WHERE holder IS NOT NULL"), "all other lanes are free")
}

// A call whose messages are published one by one goes on with none after the time for calls is
// over.
func TestForwarder_G12_nothing_is_published_after_the_close_timeout(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	to := &publishing{calls: make(chan []*message.Message, 10), do: func(messages []*message.Message) error {
		if len(messages) > 1 {
			return errBroker
		}
		ctx := messages[0].Context()
		<-ctx.Done()
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		return nil
	}}
	fwd := to.runWith(t, database, newMessage("1", "a"), newMessage("2", "b"))
	require.Len(t, to.called(t), 2)
	require.Len(t, to.called(t), 1)
	require.NoError(t, fwd.Close())
	require.Empty(t, to.calls)
	require.Equal(t, 1, pending(t, database), "one was published")
}
