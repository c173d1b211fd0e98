package forwarder_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/given"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestDecorate_keeps_an_outbox_an_outbox(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		marked := message.MessageTransformPublisherDecorator(func(msg *message.Message) { msg.Metadata.Set("mark", "here") })
		hiding := func(publisher message.Publisher) (message.Publisher, error) {
			return struct{ message.Publisher }{publisher}, nil
		}
		outbox := publisherFor(t, database, nil)
		decorated, err := forwarder.Decorate(forwarder.KeepOpen(outbox), marked, hiding)
		require.NoError(t, err)
		require.True(t, given.PublishesInTx(decorated))
		publish := func(publisher message.Publisher, id string, then error) error {
			return postbox.InTx(t.Context(), database.DB, func(ctx context.Context, _ *sql.Tx) error {
				msg := newMessage(id, "")
				msg.SetContext(ctx)
				return errors.Join(publisher.Publish("topic", msg), then)
			})
		}
		require.NoError(t, publish(decorated, "1", nil))
		require.ErrorIs(t, publish(decorated, "rolled back", errBroker), errBroker)
		require.Equal(t, 1, pending(t, database))
		require.NoError(t, decorated.Close())
		require.NoError(t, publish(outbox, "2", nil), "it was kept open")
	})
}

func TestPublishesInTx_tells_an_outbox_from_a_broker(t *testing.T) {
	t.Parallel()
	outbox := publisherFor(t, testdb.SQLite(t), nil)
	kept := forwarder.KeepOpen(outbox)
	for _, publisher := range []message.Publisher{outbox, kept, forwarder.KeepOpen(kept), struct{ *forwarder.Publisher }{outbox}} {
		require.True(t, given.PublishesInTx(publisher), "%T", publisher)
	}
	to := &broker{}
	for _, publisher := range []message.Publisher{nil, to, forwarder.KeepOpen(to), (*forwarder.Publisher)(nil), outbox.Bind(&sql.Tx{}), struct{ message.Publisher }{outbox}} {
		require.False(t, given.PublishesInTx(publisher), "%T", publisher)
		_, err := forwarder.Decorate(publisher)
		require.ErrorContains(t, err, "is not a publisher of an outbox")
	}
	broken := func(message.Publisher) (message.Publisher, error) { return nil, errBroker }
	_, err := forwarder.Decorate(outbox, broken)
	require.ErrorIs(t, err, errBroker)
	_, err = forwarder.Decorate(outbox, func(message.Publisher) (message.Publisher, error) { return nil, nil })
	require.ErrorContains(t, err, "returned no publisher")
}
