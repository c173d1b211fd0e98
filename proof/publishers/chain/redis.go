package chain

import (
	"context"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
)

// openRedis starts a stand-in for Redis in this process. It closes its connections and its port
// when it is stopped, and keeps its streams.
func openRedis(_ context.Context, _ string, logger watermill.LoggerAdapter) (*broker, error) {
	server, err := miniredis.Run()
	if err != nil {
		return nil, err
	}
	client := func() redis.UniversalClient { return redis.NewClient(&redis.Options{Addr: server.Addr()}) }
	publisher, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: client()}, logger)
	if err != nil {
		return nil, err
	}
	const (
		noBlock = -1 // once it was restarted, the stand-in does not answer reads that block
		idle    = time.Second
	)
	subscriber, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
		Client: client(), ConsumerGroup: consumer, OldestId: "0", NackResendSleep: redisstream.NoSleep,
		DisableIndefiniteInitialBlock: true, BlockTime: noBlock, MaxIdleTime: idle, ClaimInterval: idle,
	}, logger)
	if err != nil {
		return nil, err
	}
	return &broker{
		publisher: publisher, subscriber: subscriber,
		faults: []fault{{
			name:   outage,
			begin:  func(context.Context) error { server.Close(); return nil },
			repair: func(context.Context) error { return server.Restart() },
		}},
		close: func() error { server.Close(); return nil },
	}, nil
}
