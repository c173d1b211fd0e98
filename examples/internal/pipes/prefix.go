package pipes

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
)

// prefixedPublisher publishes to topics whose names begin with the prefix, so that examples share a
// broker with anything.
type prefixedPublisher struct {
	message.Publisher
	prefix string
}

// Publish publishes to the topic.
func (p prefixedPublisher) Publish(topic string, messages ...*message.Message) error {
	return p.Publisher.Publish(p.prefix+topic, messages...)
}

// prefixedSubscriber is the other end.
type prefixedSubscriber struct {
	message.Subscriber
	prefix string
}

// Subscribe subscribes to the topic.
func (s prefixedSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	return s.Subscriber.Subscribe(ctx, s.prefix+topic)
}
