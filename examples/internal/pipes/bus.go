package pipes

import (
	"context"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
)

// bus is a GoChannel that several routers share. Publish returns when all subscribers have acked:
// so a message leaves the outbox when it has arrived.
type bus struct{ *gochannel.GoChannel }

func newBus(logger watermill.LoggerAdapter) bus {
	return bus{gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, logger)}
}

func (b bus) subscriber(string, []string) (message.Subscriber, error) {
	open, done := context.WithCancel(context.Background())
	return &member{bus: b, open: open, done: done}, nil
}

// member is a subscriber of the bus whose Close, which a router calls, leaves the subscriptions of
// others alone.
type member struct {
	bus  bus
	open context.Context //nolint:containedctx // the life of the member, which Close ends
	done context.CancelFunc
}

// Subscribe subscribes until ctx ends or the member is closed.
func (m *member) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(m.open, cancel)
	return m.bus.Subscribe(ctx, topic)
}

// Close ends the subscriptions of the member.
func (m *member) Close() error {
	m.done()
	return nil
}
