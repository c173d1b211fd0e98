package amqpbroker

import (
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"golang.org/x/sync/singleflight"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/internal/lifecycle"
)

// confirmTimeout is how long a [Publisher] waits for an answer of RabbitMQ. After that it considers
// the connection dead and drops it. A deadline of the messages' context may end the wait for their
// confirms earlier.
const confirmTimeout = 30 * time.Second

// Publisher publishes to RabbitMQ and reports two things that watermill-amqp's publisher does not:
// that a message reached no queue, and whether an error is the fault of the broker or of the
// message. It uses the configuration and the marshaler of watermill-amqp.
//
// Delivery: when Publish returns nil, RabbitMQ has confirmed every message and, unless
// Publish.Mandatory is off, put each in at least one queue. When it returns an error, any of the
// messages may have arrived, unless the error says otherwise; publish all of them again. Messages
// of one ordering key (metadata partition_key) reach their queues in the order given: if one fails,
// no later message of its key arrives.
//
// Cost: the messages of a call go out together and are confirmed together, in one round trip for up
// to 128 messages of different keys, or without a key. Messages of one key cost a round trip each.
// So give it batches, call it concurrently, or both.
//
// Connection: the first Publish connects, so a service starts while RabbitMQ is down. A lost
// connection is opened again by the next Publish; there is no loop in the background, since a
// forwarder has a backoff of its own.
//
// A Publisher can be used concurrently.
type Publisher struct {
	config         amqp.Config
	logger         watermill.LoggerAdapter
	confirmTimeout time.Duration

	dialing singleflight.Group // callers that find no connection wait for one dial and share its result
	calls   lifecycle.Calls    // of Publish

	mu   sync.Mutex // guards link
	link *link
}

var _ message.Publisher = (*Publisher)(nil)

// NewPublisher returns a publisher with that configuration, usually one of [DefaultPublisherConfig]
// or [DefaultQueueConfig]. It does not connect yet. A nil logger is allowed.
//
// It refuses settings that would lose messages, and settings that it replaces:
// Publish.ConfirmDelivery must be on; Transactional, Immediate and ChannelPoolSize must be off. It
// keeps up to 64 idle channels instead of a pool. The setting Connection.Reconnect and all settings
// of queues and consumers are for subscribers and are not read.
func NewPublisher(config amqp.Config, logger watermill.LoggerAdapter) (*Publisher, error) {
	if err := validate(config); err != nil {
		return nil, fmt.Errorf("invalid config: %w", err)
	}
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	return &Publisher{config: config, logger: logger, confirmTimeout: confirmTimeout}, nil
}

func validate(config amqp.Config) error {
	problems := []error{config.ValidatePublisher()}
	if !config.Publish.ConfirmDelivery {
		problems = append(problems, errors.New("Publish.ConfirmDelivery must be true: without confirms a message can be lost unnoticed"))
	}
	if config.Publish.Transactional {
		problems = append(problems, errors.New("Publish.Transactional must be false: confirms replace it"))
	}
	if config.Publish.Immediate {
		problems = append(problems, errors.New("Publish.Immediate must be false: RabbitMQ does not support it"))
	}
	if config.Publish.ChannelPoolSize != 0 {
		problems = append(problems, errors.New("Publish.ChannelPoolSize must be 0: the publisher keeps channels itself"))
	}
	if config.TopologyBuilder == nil {
		problems = append(problems, errors.New("missing TopologyBuilder"))
	}
	problems = append(problems, validateURI(config.Connection.AmqpURI))
	return errors.Join(problems...)
}

// validateURI keeps the address, which contains a password, out of the error. The error of
// url.Parse contains the whole address, and its cause contains the part that it takes for the port.
func validateURI(uri string) error {
	_, err := amqp091.ParseURI(uri)
	var withPassword *url.Error
	switch {
	case errors.As(err, &withPassword):
		return errors.New("Connection.AmqpURI: the value is not a URL: check its port, and write %xx for the special characters of a password")
	case err != nil:
		return fmt.Errorf("Connection.AmqpURI: %w", err)
	}
	return nil
}

// Publish sends the messages to the topic's exchange, or queue, and waits for the confirms. The
// exchange is declared with the first message to it on each connection.
//
// All messages are encoded first: if one cannot be encoded, nothing is sent. The errors of this
// package say what went wrong; [Classify] knows them all. After [Publisher.Close] it returns
// [postbox.ErrClosed].
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	if err := p.calls.Begin(); err != nil {
		return fmt.Errorf("RabbitMQ publisher: %w", err)
	}
	defer p.calls.End()
	if len(messages) == 0 {
		return nil
	}
	if err := p.publish(topic, messages); err != nil {
		return fmt.Errorf("publish to topic %.300q: %w", topic, err)
	}
	return nil
}

// Close waits for the calls of Publish in flight, each at most 30 s for a round trip, and closes
// the connection. It may be called any number of times, and concurrently; each call
// returns when the connection is closed. It always returns nil.
func (p *Publisher) Close() error {
	return p.calls.Close(func() error {
		if p.link != nil {
			p.link.close()
		}
		return nil
	})
}

func (p *Publisher) publish(topic string, messages []*message.Message) error {
	to := destination{
		exchange:   p.config.Exchange.GenerateName(topic),
		routingKey: p.config.Publish.GenerateRoutingKey(topic),
		mandatory:  p.config.Publish.Mandatory,
	}
	if err := to.validate(); err != nil {
		return err
	}
	batch, err := encode(p.config.Marshaler, messages)
	if err != nil {
		return err
	}
	link, err := p.connected()
	if err != nil {
		return err
	}
	return link.publish(p.config, to, batch)
}

// connected returns the connection, and opens one if there is none.
func (p *Publisher) connected() (*link, error) {
	if link := p.open(); link != nil {
		return link, nil
	}
	dialled, err, _ := p.dialing.Do("", func() (any, error) {
		if link := p.open(); link != nil { // opened since the check above
			return link, nil
		}
		link, err := dial(p.config.Connection, p.confirmTimeout)
		if err != nil {
			return nil, err
		}
		p.logger.Info("Connected to RabbitMQ", nil)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.link = link
		return link, nil
	})
	if err != nil {
		return nil, err
	}
	return dialled.(*link), nil //nolint:forcetypeassert // the function above returns nothing else
}

// open returns the connection if it is open.
func (p *Publisher) open() *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.link == nil || p.link.conn.IsClosed() {
		return nil
	}
	return p.link
}
