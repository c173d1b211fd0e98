package chain

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-googlecloud/v2/pkg/googlecloud"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/proof/testcluster"
)

// openGoogle starts Google's own stand-in for Pub/Sub in this process. While it is stopped, nothing
// reaches it. Its clock is quick, and jumps when it is started, so that the leases of messages that
// were on their way are over soon.
func openGoogle(_ context.Context, topic string, logger watermill.LoggerAdapter) (*broker, error) {
	const (
		project = "postbox"
		wait    = 500 * time.Millisecond // for an answer; the publisher's default is five seconds
		quick   = 5                      // a lease of ten seconds takes two
		jump    = time.Minute            // the longest lease
	)
	server := pstest.NewServer()
	began := time.Now()
	var jumped atomic.Int64
	server.SetTimeNowFunc(func() time.Time { return began.Add(quick*time.Since(began) + time.Duration(jumped.Load())) })
	relay, err := testcluster.NewRelay()
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	relay.Move(server.Addr)
	client := []option.ClientOption{
		option.WithEndpoint(relay.Address()), option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
		option.WithGRPCDialOption(grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{
			BaseDelay: probeMin, Multiplier: 1, MaxDelay: probeMax, // the default waits a second and more
		}})),
	}
	subscriber, err := googlecloud.NewSubscriber(googlecloud.SubscriberConfig{
		ProjectID: project, ClientOptions: client,
		GenerateSubscription: func(googlecloud.GenerateSubscriptionParams) *pubsubpb.Subscription {
			return &pubsubpb.Subscription{EnableMessageOrdering: true}
		},
	}, logger)
	if err != nil {
		return nil, err
	}
	if err := subscriber.SubscribeInitialize(topic); err != nil {
		return nil, err
	}
	// Without the automatic resume, an ordering key whose message failed once would fail for ever.
	publisher, err := googlecloud.NewPublisher(googlecloud.PublisherConfig{
		ProjectID: project, ClientOptions: client, PublishTimeout: wait,
		EnableMessageOrdering: true, EnableMessageOrderingAutoResumePublishOnError: true,
		Marshaler: googlecloud.NewOrderingMarshaler(func(_ string, msg *message.Message) (string, error) {
			return msg.Metadata.Get(postbox.MetadataOrderingKey), nil
		}),
	}, logger)
	if err != nil {
		return nil, err
	}
	return &broker{
		publisher: publisher, subscriber: subscriber,
		faults: []fault{{
			name:  outage,
			begin: func(context.Context) error { relay.Cut(); return nil },
			repair: func(context.Context) error {
				jumped.Add(int64(jump))
				relay.Move(server.Addr)
				return nil
			},
		}},
		close: func() error {
			relay.Close()
			return server.Close()
		},
	}, nil
}
