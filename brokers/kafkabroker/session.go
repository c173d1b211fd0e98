package kafkabroker

import (
	"context"
	"sync"

	"github.com/IBM/sarama"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
)

// Subscriber is a kafka.Subscriber whose messages end with the session of their group. When the
// group rebalances, the context of each message in flight ends, and with it the pause of an inbox.
// A message that is nacked after that is not delivered again here: its next owner gets it.
//
// watermill-kafka's own subscriber delivers a nacked message until it is acked, whatever becomes of
// the session. Sarama waits for it, and the whole group for that member, up to a minute.
//
// A message that is acked after its session has ended is delivered to the next owner too, as with
// watermill-kafka. It is safe for concurrent use.
type Subscriber struct {
	*kafka.Subscriber

	sessions *sessions
}

// NewSubscriber returns a subscriber. A nil logger logs nothing.
func NewSubscriber(config kafka.SubscriberConfig, logger watermill.LoggerAdapter) (*Subscriber, error) {
	if config.OTELEnabled && config.Tracer == nil {
		config.Tracer = kafka.NewOTELSaramaTracer()
	}
	s := &sessions{SaramaTracer: config.Tracer, current: map[claimed]context.Context{}}
	config.Tracer = s
	subscriber, err := kafka.NewSubscriber(config, logger)
	if err != nil {
		return nil, err
	}
	return &Subscriber{Subscriber: subscriber, sessions: s}, nil
}

// Subscribe is that of kafka.Subscriber.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	in, err := s.Subscriber.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		var handing sync.WaitGroup
		for msg := range in { // each partition hands out one message at a time
			handing.Go(func() { s.hand(topic, msg, out) })
		}
		handing.Wait()
	}()
	return out, nil
}

// hand hands out a message in a context that ends with its session. The ack of a message whose
// session has ended is for watermill-kafka alone, which commits nothing then and lets go of it.
func (s *Subscriber) hand(topic string, msg *message.Message, out chan<- *message.Message) {
	ctx := msg.Context()
	partition, _ := kafka.MessagePartitionFromCtx(ctx)
	if session := s.sessions.of(claimed{topic, partition}); session != nil {
		if session.Err() != nil {
			msg.Ack()
			return
		}
		within, end := context.WithCancel(ctx)
		forget := context.AfterFunc(session, end)
		context.AfterFunc(ctx, func() { forget(); end() }) // when watermill-kafka is done with the message
		msg.SetContext(within)
	}
	select {
	case out <- msg:
	case <-msg.Context().Done():
		if ctx.Err() == nil {
			msg.Ack()
		}
	}
}

// claimed is a partition that a group has given to this process.
type claimed struct {
	topic     string
	partition int32
}

// sessions knows the newest session of each partition. Watermill-kafka shows it to a tracer only.
type sessions struct {
	kafka.SaramaTracer // that of the user, or nil

	mu      sync.Mutex
	current map[claimed]context.Context //nolint:containedctx // of the sessions
}

func (s *sessions) of(claim claimed) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current[claim]
}

// WrapConsumer implements kafka.SaramaTracer.
func (s *sessions) WrapConsumer(c sarama.Consumer) sarama.Consumer {
	if s.SaramaTracer == nil {
		return c
	}
	return s.SaramaTracer.WrapConsumer(c)
}

// WrapPartitionConsumer implements kafka.SaramaTracer.
func (s *sessions) WrapPartitionConsumer(c sarama.PartitionConsumer) sarama.PartitionConsumer {
	if s.SaramaTracer == nil {
		return c
	}
	return s.SaramaTracer.WrapPartitionConsumer(c)
}

// WrapConsumerGroupHandler implements kafka.SaramaTracer.
func (s *sessions) WrapConsumerGroupHandler(h sarama.ConsumerGroupHandler) sarama.ConsumerGroupHandler {
	if s.SaramaTracer != nil {
		h = s.SaramaTracer.WrapConsumerGroupHandler(h)
	}
	return noting{h, s}
}

// noting notes the session of each claim before it is consumed.
type noting struct {
	sarama.ConsumerGroupHandler

	sessions *sessions
}

// ConsumeClaim implements sarama.ConsumerGroupHandler.
func (n noting) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	n.sessions.mu.Lock()
	n.sessions.current[claimed{claim.Topic(), claim.Partition()}] = session.Context()
	n.sessions.mu.Unlock()
	return n.ConsumerGroupHandler.ConsumeClaim(session, claim)
}
