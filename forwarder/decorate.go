package forwarder

import (
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/internal/given"
)

// Decorate puts decorators, such as DecoratePublisher of Watermill's metrics, around the publisher
// of an outbox. The last one is the outermost. Inboxes and queues accept the result as their
// outbox. A decorator that you put around the publisher by hand hides that it writes in the
// transaction: see [Publisher.PublishesInTx]. A decorator must pass the messages on within its
// Publish, with their contexts.
func Decorate(outbox message.Publisher, decorators ...message.PublisherDecorator) (message.Publisher, error) {
	if !given.PublishesInTx(outbox) {
		return nil, fmt.Errorf("decorate: a %T is not a publisher of an outbox", outbox)
	}
	publisher := outbox
	for _, decorate := range decorators {
		if decorate == nil {
			return nil, errors.New("decorate: a decorator is nil")
		}
		var err error
		if publisher, err = decorate(publisher); err != nil {
			return nil, fmt.Errorf("decorate: %w", err)
		}
		if publisher == nil {
			return nil, errors.New("decorate: a decorator returned no publisher")
		}
	}
	return decorated{publisher, outbox}, nil
}

// decorated is the publisher of an outbox with decorators around it.
type decorated struct {
	message.Publisher

	outbox message.Publisher // without them
}

// PublishesInTx returns true.
func (decorated) PublishesInTx() bool { return true }
