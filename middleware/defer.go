package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/given"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// DeferStore is the store that [Defer] needs; [inboxstore.Store] is one.
type DeferStore interface {
	// Defer stores a message in a queue, once.
	Defer(ctx context.Context, queue string, key inboxstore.Key, msg *message.Message) (fresh bool, err error)
}

// Defer returns a middleware that stores each message in a queue and acks it, instead of running the handler. A
// queue.Subscriber gives the message to another handler later. The broker gets its ack after the commit, and its
// time-outs no longer matter. A message that comes again is stored once.
//
// The message needs a UUID; a message without one is refused with [ErrNoMessageID]. [DeferWith] has settings for such messages, and its
// comment says more. Defer is safe for concurrent use by any number of handlers.
//
// Defer panics if the store is nil, if the queue has no name, or if the name is longer than 249 bytes. Watermill's router does the same when a handler cannot be
// added: a program with such a mistake does not start. [DeferWith] returns an error instead.
func Defer(store DeferStore, queue string) message.HandlerMiddleware {
	deferral, err := DeferWith(store, queue, DeferConfig{})
	if err != nil {
		panic(err)
	}
	return deferral
}

// DeferWith is [Defer] with a configuration.
//
// It stores the message. It adds to the stored metadata the values that the config's Capture returns, and as [postbox.SourceTopic] the topic
// that the message came from, where the metadata has no value for them. The delivered message stays as it is. Two handlers
// that defer to the same queue store a message of the same topic once.
//
// When the message cannot be stored, the middleware returns the error after a pause, which ends with the message's
// context. The router then nacks the message, and the broker delivers it again. The broker does so after a crash too; a message that was
// committed before is then a duplicate, and is acked.
func DeferWith(store DeferStore, queue string, config DeferConfig) (message.HandlerMiddleware, error) {
	if given.Nil(store) {
		return nil, errors.New("defer: the store is nil")
	}
	if err := spool.CheckQueue(queue); err != nil {
		return nil, fmt.Errorf("defer: %w", err)
	}
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("defer to queue %.300q: invalid config: %w", queue, err)
	}
	return newDeferral(store, queue, config).middleware, nil
}

// deferral stores messages in a queue.
type deferral struct {
	store    DeferStore
	queue    string
	consumer string
	config   DeferConfig
	failures atomic.Int32 // in a row
}

func newDeferral(store DeferStore, queue string, config DeferConfig) *deferral {
	return &deferral{store: store, queue: queue, consumer: "queue " + queue, config: config}
}

func (d *deferral) middleware(message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		ctx := msg.Context()
		if err := d.process(ctx, msg); err != nil {
			pause(ctx, d.config.Retry, int(d.failures.Add(1)), err)
			return nil, err
		}
		if d.failures.Load() != 0 {
			d.failures.Store(0)
		}
		return nil, nil
	}
}

func (d *deferral) process(ctx context.Context, msg *message.Message) error {
	source := message.SubscribeTopicFromCtx(ctx)
	key := inboxstore.Key{Consumer: d.consumer, Topic: cmp.Or(d.config.Topic, source), MessageID: d.config.MessageID(msg)}
	if key.MessageID == "" {
		var err error
		if key.MessageID, err = nameWithoutID(msg, d.config.WithoutID); err != nil {
			return fmt.Errorf("defer to queue %.300q: %w", d.queue, err)
		}
	}
	stored := message.NewMessage(msg.UUID, msg.Payload)
	stored.Metadata = d.metadata(msg, cmp.Or(source, d.config.Topic))
	_, err := d.store.Defer(ctx, d.queue, key, stored)
	return err
}

// metadata returns the metadata of the message, with the values that would be lost when it leaves its broker.
func (d *deferral) metadata(msg *message.Message, source string) message.Metadata {
	captured := d.config.Capture(msg)
	metadata := make(message.Metadata, len(msg.Metadata)+len(captured)+2)
	if source != "" {
		metadata[postbox.SourceTopic] = source
	}
	maps.Copy(metadata, captured)
	maps.Copy(metadata, msg.Metadata)
	switch key := captured[postbox.KafkaKey]; {
	case d.config.OrderingKey != nil:
		if key := d.config.OrderingKey(msg); key != metadata[postbox.OrderingKey] {
			metadata[postbox.OrderingKey] = key
		}
	case metadata[postbox.OrderingKey] == "" && key != "" && key != msg.UUID: // which a record has where it has no key
		metadata[postbox.OrderingKey] = key
	}
	return metadata
}
