package chain_test

import (
	"context"
	"errors"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	natsclient "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
)

// The client of NATS acks a message whose callback has returned, and watermill-nats returns when
// its wait for the ack is over, as it is while an inbox pauses before a nack. With ManualAck, which
// the page of brokers asks for, the message comes again until it is done or dead.
func TestNATS_acks_nothing_that_was_nacked_late(t *testing.T) {
	t.Parallel()
	server, err := natsserver.NewServer(&natsserver.Options{Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true})
	require.NoError(t, err)
	server.Start()
	defer server.Shutdown()
	require.True(t, server.ReadyForConnections(time.Minute))
	client, err := natsclient.Connect(server.ClientURL())
	require.NoError(t, err)
	defer client.Close()
	stream, err := client.JetStream()
	require.NoError(t, err)
	_, err = stream.AddStream(&natsclient.StreamConfig{Name: "orders", Subjects: []string{"orders"}})
	require.NoError(t, err)
	_, err = stream.AddConsumer("orders", &natsclient.ConsumerConfig{
		Durable: "billing", DeliverSubject: natsclient.NewInbox(), DeliverGroup: "billing", AckPolicy: natsclient.AckExplicitPolicy, AckWait: time.Second, MaxAckPending: 1,
	})
	require.NoError(t, err)

	database := testdb.SQLite(t)
	database.Migrate(t)
	store, err := inboxstore.New(database.Postbox(), inboxstore.Config{}, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	late := 10 * time.Second // longer than the subscriber waits
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Retry: postbox.RetryProfile{Attempts: 3, Base: late, Cap: late, Jitter: -1}}, nil)
	require.NoError(t, err)
	subscriber, err := nats.NewSubscriber(nats.SubscriberConfig{
		URL: server.ClientURL(), QueueGroupPrefix: "billing", AckWaitTimeout: 300 * time.Millisecond,
		JetStream: nats.JetStreamConfig{DurablePrefix: "billing", SubscribeOptions: []natsclient.SubOpt{natsclient.ManualAck()}},
	}, nil)
	require.NoError(t, err)
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	require.NoError(t, err)
	router.AddConsumerHandler("billing", "orders", subscriber, func(*message.Message) error { return errors.New("the card is declined") }).AddMiddleware(inbox.Middleware)
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.WithoutCancel(t.Context())) }()
	<-router.Running()
	_, err = stream.PublishMsg(&natsclient.Msg{Subject: "orders", Header: natsclient.Header{nats.WatermillUUIDHdr: {"order-1"}}, Data: []byte("{}")})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return database.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters") == 1 }, time.Minute, 10*time.Millisecond)
	require.NoError(t, router.Close())
	require.NoError(t, <-ended)
}
