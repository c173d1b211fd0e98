package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/given"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/verdict"
)

// DeferStore is the store that [Defer] needs; [inboxstore.Store] is one.
type DeferStore interface {
	// Defer claims the key and stores the message in a queue, both or neither. It returns false if
	// the key has a committed claim. An error is a [postbox.Permanent] error if no later call could
	// store the message either.
	Defer(ctx context.Context, queue string, key inboxstore.Key, msg *message.Message) (fresh bool, err error)
	// Bury is that of [InboxStore]: messages that can never be stored become dead letters.
	Bury(ctx context.Context, key inboxstore.Key, msg *message.Message, attempts int, cause error) error
}

// Defer returns a middleware that stores each message in a queue and acks it, instead of running
// the handler. A queue.Subscriber gives the message to another handler later. The broker gets its
// ack after the commit, and its time-outs no longer matter. A message that comes again is stored
// once.
//
// The message needs a UUID; a message without one becomes a dead letter. [DeferWith] has settings
// for such messages, and its comment says more. Defer is safe for concurrent use by any number of
// handlers.
//
// Defer panics if the store is nil, if the queue has no name, or if the name is longer than 249
// bytes. Watermill's router does the same when a handler cannot be added: a program with such a
// mistake does not start. [DeferWith] returns an error instead.
func Defer(store DeferStore, queue string) message.HandlerMiddleware {
	deferral, err := DeferWith(store, queue, DeferConfig{})
	if err != nil {
		panic(err)
	}
	return deferral
}

// DeferWith is [Defer] with a configuration.
//
// It stores the message. It sets in the stored metadata the values that the config's Capture
// returns, and as [postbox.MetadataSourceTopic] the topic that the message came from, whatever
// values the message has there. The delivered message stays as it is. Two handlers that defer to
// the same queue store a message of the same topic once.
//
// A message that no later delivery could store either (a [postbox.Permanent] error: it is too
// large, has no id, its delay cannot be read, and the like) becomes a dead letter, as delivered, of
// the consumer "queue " and the queue's name. It is acked. After any other error the middleware
// returns the error after a pause, which ends when the delivery is cancelled. The router then nacks
// the message, and the broker delivers it again. The broker does so after a crash too; a message
// that was committed before is then a duplicate, and is acked.
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
	brake    brake
}

func newDeferral(store DeferStore, queue string, config DeferConfig) *deferral {
	return &deferral{store: store, queue: queue, consumer: "queue " + queue, config: config, brake: brake{profile: config.Retry}}
}

func (d *deferral) middleware(message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		ctx := msg.Context()
		err := d.process(ctx, msg)
		d.brake.ended(ctx, 0, err)
		return nil, err
	}
}

func (d *deferral) process(ctx context.Context, msg *message.Message) error {
	source := message.SubscribeTopicFromCtx(ctx)
	key := inboxstore.Key{Consumer: d.consumer, Topic: cmp.Or(d.config.Topic, source), MessageID: d.config.MessageID(msg)}
	var err error
	if key.MessageID == "" {
		key.MessageID, err = nameWithoutID(msg, d.config.WithoutID)
	}
	if err != nil {
		err = fmt.Errorf("defer to queue %.300q: %w", d.queue, err)
	} else {
		stored := message.NewMessage(msg.UUID, msg.Payload)
		stored.Metadata = d.metadata(msg, cmp.Or(source, d.config.Topic))
		_, err = d.store.Defer(ctx, d.queue, key, stored)
	}
	if verdict.IsPermanent(err) {
		return bury(ctx, d.store, key, msg, 0, err)
	}
	return err
}

// burier is what [bury] needs of a store.
type burier interface {
	Bury(ctx context.Context, key inboxstore.Key, msg *message.Message, attempts int, cause error) error
}

// bury makes a message a dead letter. One without an id gets a new one, so that each such message
// has a letter. After an error the message is still to be nacked.
func bury(ctx context.Context, store burier, key inboxstore.Key, msg *message.Message, attempts int, cause error) error {
	key.MessageID = cmp.Or(key.MessageID, postbox.NewMessageID())
	if err := store.Bury(ctx, key, msg, attempts, cause); err != nil {
		return errors.Join(cause, err)
	}
	return nil
}

// metadata returns the metadata of the message, with the values that would be lost when it leaves
// its broker. A producer cannot set these: receipts, replays and operators take the topic for where
// the message came from.
func (d *deferral) metadata(msg *message.Message, source string) message.Metadata {
	captured := d.config.Capture(msg)
	metadata := make(message.Metadata, len(msg.Metadata)+len(captured)+2)
	maps.Copy(metadata, msg.Metadata)
	spool.ForgetOrigin(metadata)
	maps.Copy(metadata, captured)
	if source != "" {
		metadata[postbox.MetadataSourceTopic] = source
	}
	switch key := captured[spool.KafkaKey]; {
	case d.config.OrderingKey != nil:
		if key := d.config.OrderingKey(msg); key != metadata[postbox.MetadataOrderingKey] {
			metadata[postbox.MetadataOrderingKey] = key
		}
	case metadata[postbox.MetadataOrderingKey] == "" && key != "" && key != msg.UUID: // which a record has where it has no key
		metadata[postbox.MetadataOrderingKey] = key
	}
	return metadata
}
