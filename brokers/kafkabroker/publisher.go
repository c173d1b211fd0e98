package kafkabroker

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/internal/lifecycle"
)

// Publisher publishes to Kafka like watermill-kafka's publisher, with its configuration and
// marshalers, but sends the messages of a call together instead of one after the other.
//
// Delivery: when Publish returns nil, Kafka has accepted every message. When it returns an error,
// any of the messages may have arrived; publish all of them again. Messages of one ordering key
// (metadata partition_key) are written in the order given: if one fails, no later message of its
// key is written. Messages without a key are in no order.
//
// Cost: the messages of a call go out in waves, first the first message of each key, then the
// second of each, and so on. A wave costs a round trip or two, however many messages it has, and
// the next one waits for it. So a call with messages of only one key costs a round trip for each of
// them. Give it batches, call it concurrently, or both.
//
// A Publisher can be used concurrently.
type Publisher struct {
	marshaler kafka.Marshaler
	producer  sarama.SyncProducer
	logger    watermill.LoggerAdapter

	calls lifecycle.Calls // of Publish
}

var _ message.Publisher = (*Publisher)(nil)

// NewPublisher connects, and returns a publisher with that configuration, usually the one of
// [DefaultPublisherConfig]. It fails while no broker answers, with an error that [Classify] knows.
// A nil logger is allowed. If OverwriteSaramaConfig is nil, that of [DefaultPublisherConfig] is
// used.
//
// NewPublisher refuses settings that would lose messages: Producer.Idempotent must be off,
// RequiredAcks must not be NoResponse, and Return.Successes and Return.Errors must be on.
func NewPublisher(config kafka.PublisherConfig, logger watermill.LoggerAdapter) (*Publisher, error) {
	if config.OverwriteSaramaConfig == nil {
		config.OverwriteSaramaConfig = DefaultPublisherConfig(config.Brokers).OverwriteSaramaConfig
	}
	if err := validate(config); err != nil {
		return nil, fmt.Errorf("invalid config: %w", err)
	}
	producer, err := sarama.NewSyncProducer(config.Brokers, config.OverwriteSaramaConfig)
	if err != nil {
		return nil, fmt.Errorf("connect to Kafka: %w", err)
	}
	if config.OTELEnabled && config.Tracer == nil {
		config.Tracer = kafka.NewOTELSaramaTracer()
	}
	if config.Tracer != nil {
		producer = config.Tracer.WrapSyncProducer(config.OverwriteSaramaConfig, producer)
	}
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	return &Publisher{marshaler: config.Marshaler, producer: producer, logger: logger}, nil
}

func validate(config kafka.PublisherConfig) error {
	problems := []error{config.Validate()}
	producer := config.OverwriteSaramaConfig.Producer
	if !producer.Return.Successes {
		problems = append(problems, errors.New("Producer.Return.Successes must be true: Publish waits for them"))
	}
	if !producer.Return.Errors {
		problems = append(problems, errors.New("Producer.Return.Errors must be true: Publish returns them"))
	}
	if producer.RequiredAcks == sarama.NoResponse {
		problems = append(problems, errors.New("Producer.RequiredAcks must be WaitForAll: without answers a message can be lost unnoticed"))
	}
	if producer.Idempotent {
		problems = append(problems, errors.New("Producer.Idempotent must be false: sarama loses messages with it"))
	}
	return errors.Join(problems...)
}

// Publish sends the messages to the topic and waits until Kafka has accepted them.
//
// All messages are encoded first: if one cannot be encoded, nothing is sent. Publish stops after
// the first wave in which Kafka did not accept a message. It returns the error of that message or,
// if several failed, one error with the class that [Classify] gives to all of them together. It
// sends no further wave when the context of a message in that wave has ended. Like watermill-kafka,
// it does not end the wait for a wave under way. After [Publisher.Close] it returns
// [postbox.ErrClosed].
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	if err := p.calls.Begin(); err != nil {
		return fmt.Errorf("Kafka publisher: %w", err)
	}
	defer p.calls.End()
	if err := p.publish(topic, messages); err != nil {
		return fmt.Errorf("publish to topic %.300q: %w", topic, err)
	}
	return nil
}

// Close waits for the calls of Publish in flight, each as long as the producer goes on trying, and
// closes the connections. It may be called any number of times, and concurrently; each call returns
// when they are closed.
func (p *Publisher) Close() error {
	return p.calls.Close(func() error { // sarama panics when it is given a message after its end
		if err := p.producer.Close(); err != nil {
			return fmt.Errorf("close Kafka publisher: %w", err)
		}
		return nil
	})
}

func (p *Publisher) publish(topic string, messages []*message.Message) error {
	batch, err := encode(p.marshaler, topic, messages)
	if err != nil {
		return err
	}
	for _, wave := range waves(batch) {
		if err := p.send(wave); err != nil {
			return err
		}
		p.logger.Trace("Kafka has accepted messages", watermill.LogFields{"topic": topic, "messages": len(wave)})
	}
	return nil
}

// send sends a wave and waits until each message of it is accepted or has failed.
func (p *Publisher) send(wave []outgoing) error {
	records := make([]*sarama.ProducerMessage, len(wave))
	for i, out := range wave {
		if err := out.ctx.Err(); err != nil {
			return fmt.Errorf("message %.60q not sent: %w", out.id, err)
		}
		records[i] = out.record
	}
	return explain(p.producer.SendMessages(records), wave)
}
