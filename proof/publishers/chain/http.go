package chain

import (
	"context"
	nethttp "net/http"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-http/v2/pkg/http"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/proof/testcluster"
)

// openHTTP has no broker: the publisher calls the subscriber. Messages wait in the outbox while
// that is away, and an ack is an answer.
func openHTTP(_ context.Context, _ string, logger watermill.LoggerAdapter) (*broker, error) {
	relay, err := testcluster.NewRelay()
	if err != nil {
		return nil, err
	}
	const timeout = 5 * time.Second // the default client would wait for ever
	publisher, err := http.NewPublisher(http.PublisherConfig{
		Client: &nethttp.Client{Timeout: timeout},
		MarshalMessageFunc: func(topic string, msg *message.Message) (*nethttp.Request, error) {
			request, err := http.DefaultMarshalMessageFunc("http://"+relay.Address()+"/"+topic, msg)
			if err != nil {
				return nil, err
			}
			return request.WithContext(msg.Context()), nil
		},
	}, logger)
	if err != nil {
		return nil, err
	}
	subscriber, err := http.NewSubscriber("127.0.0.1:0", http.SubscriberConfig{}, logger)
	if err != nil {
		return nil, err
	}
	listen := func() { relay.Move(subscriber.Addr().String()) }
	return &broker{
		publisher: publisher, subscriber: subscriber,
		serve: func(ctx context.Context) error {
			ended := make(chan error, 1)
			go func() { ended <- subscriber.StartHTTPServer() }()
			err := poll(ctx, func() (bool, error) {
				select {
				case err := <-ended:
					return false, err
				default:
					return subscriber.Addr() != nil, nil
				}
			})
			if err == nil {
				listen()
			}
			return err
		},
		faults: []fault{{
			name:   outage,
			begin:  func(context.Context) error { relay.Cut(); return nil },
			repair: func(context.Context) error { listen(); return nil },
		}},
		close: func() error { relay.Close(); return nil },
	}, nil
}
