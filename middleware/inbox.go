package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/given"
	"github.com/postbox-go/watermill-postbox/internal/receipt"
	"github.com/postbox-go/watermill-postbox/internal/report"
	"github.com/postbox-go/watermill-postbox/internal/retries"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/verdict"
)

// InboxStore is the store that an inbox needs; [inboxstore.Store] is one. It is safe for concurrent
// use. Test one of your own with package inboxstore/storetest.
type InboxStore interface {
	// Once claims the key, runs fn and commits the claim if fn returns nil. If the key has a
	// committed claim, it returns false and does not run fn. If a claim is in progress, it waits
	// for its end. It returns an error of fn, and only that, as [inboxstore.HandlerError]. Then,
	// and after a panic, the key is free again.
	//
	// The context that fn gets has the values of ctx and stays alive for the close timeout after
	// ctx has ended.
	Once(ctx context.Context, key inboxstore.Key, fn func(ctx context.Context) error) (fresh bool, err error)
	// RecordFailure keeps a failed attempt and returns the number of failed attempts of this key.
	// It also works with a context that has ended.
	RecordFailure(ctx context.Context, key inboxstore.Key, cause error) (attempts int, err error)
	// Bury moves a message to the dead letters and claims its key for good. It does nothing if the
	// key has a committed claim. It also works with a context that has ended.
	Bury(ctx context.Context, key inboxstore.Key, msg *message.Message, attempts int, cause error) error
}

// HistoryStore is a store that can keep the messages that were handled, as [InboxConfig.History]
// asks; [inboxstore.Store] is one.
type HistoryStore interface {
	InboxStore
	// OnceReceived is Once for a message that is kept if fn handles it, with the commit of the
	// claim. A duplicate and an error of fn keep nothing.
	OnceReceived(ctx context.Context, key inboxstore.Key, received inboxstore.Received, fn func(ctx context.Context) error) (fresh bool, err error)
}

// errNoHistory is returned for a store that is no [HistoryStore].
var errNoHistory = errors.New("History: the store keeps no messages: use a store that does, such as one of inboxstore.New, or leave History out")

// Inbox is a middleware with which a handler has its effect once for each message, however often
// and however concurrently the message is delivered. The effect consists of the handler's writes in
// the transaction that [postbox.TxFromContext] finds in the message's context, and of the messages
// that it returns, which go to the outbox.
//
// A handler that fails leaves only a failure record. After the last attempt, or at once when the
// error is [postbox.Permanent], the message becomes a dead letter and is acked. No attempt is
// counted when the database is away, or when the transaction conflicts with others. A handler that
// loses its connection, or that overlooks the error of a statement, has failed. The writes of a
// handler that returned an error are never committed, whatever middleware stands around the inbox;
// for middlewares between the inbox and the handler see [Guard].
//
// A middleware outside of the inbox that takes its error, as Watermill's IgnoreErrors and
// PoisonQueue do, acks the message, which then has no effect and no dead letter. The inbox cannot
// see that, and logs a nack. After a crash the broker delivers the message again: a duplicate
// is acked without running the handler.
//
// An inbox within another one that names the message alike is part of the outer one, which alone
// counts failures. An inbox costs one INSERT in the handler's transaction, and a second one if it
// keeps a history. It is safe for concurrent use by any number of handlers.
type Inbox struct {
	store     InboxStore
	history   HistoryStore // nil if messages are not kept
	config    InboxConfig
	logger    watermill.LoggerAdapter
	brake     brake
	uncounted sync.Once // logs once that the owner of a transaction must commit failures
}

// NewInbox returns an inbox. A nil logger logs nothing.
func NewInbox(store InboxStore, config InboxConfig, logger watermill.LoggerAdapter) (*Inbox, error) {
	if given.Nil(store) {
		return nil, errors.New("inbox: the store is nil")
	}
	config.setDefaults()
	history, keeps := store.(HistoryStore)
	err := config.validate()
	switch {
	case config.History == 0:
		history = nil
	case !keeps:
		err = errors.Join(err, errNoHistory)
	}
	if err != nil {
		return nil, fmt.Errorf("inbox: invalid config: %w", err)
	}
	if given.Nil(logger) {
		logger = watermill.NopLogger{}
	}
	return &Inbox{store: store, history: history, config: config, logger: logger, brake: brake{profile: config.Retry}}, nil
}

// Middleware is the inbox as a middleware of Watermill's router. It returns no messages to the
// router, because the router would publish them after the commit and lose them in a crash.
func (i *Inbox) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		_, err := i.Process(msg.Context(), msg, h)
		return nil, err
	}
}

// Process handles a message without a router. The config's Consumer, Topic and PublishTopic replace
// what a router would supply. It returns true if the handler ran and its transaction was committed,
// or will be with that of ctx. It returns false and no error for a duplicate, when the message
// became a dead letter, or when MapError made it done: ack the message. After an error nack it, or
// deliver it again. Process pauses before it returns an error, as Retry of the config says.
//
// If ctx carries a transaction of yours, the failure is recorded in it: commit it after an error
// too, or no attempt is counted.
//
// The handler gets a copy of the payload and of the metadata in msg, each time that it runs. After
// an error, and in the dead letters, the message is as it was delivered.
func (i *Inbox) Process(ctx context.Context, msg *message.Message, h message.HandlerFunc) (processed bool, err error) {
	key, carried, err := i.key(ctx, msg)
	attempts := 0
	if err == nil {
		processed, attempts, err = i.process(ctx, key, carried, msg, h)
	} else if verdict.IsPermanent(err) {
		err = bury(ctx, i.store, key, msg, 0, err)
	}
	i.brake.ended(ctx, attempts, err)
	return processed, err
}

// process returns the number of attempts, 0 if none was counted.
func (i *Inbox) process(ctx context.Context, key inboxstore.Key, carried string, msg *message.Message, h message.HandlerFunc) (processed bool, attempts int, err error) {
	before, came := msg.Context(), deliveredAs(msg, carried)
	confirmed := receipt.Receipt{Consumer: key.Consumer, Topic: key.Topic, MessageID: cmp.Or(msg.UUID, key.MessageID)}
	defer msg.SetContext(before) //nolint:contextcheck // the one it had
	fresh, err := i.once(ctx, key, came, func(ctx context.Context) error {
		came.give(msg) // again after a conflict
		ctx = inside(ctx)
		msg.SetContext(ctx)
		return emitter{i.config.Outbox, i.config.PublishTopic, i.config.ReceiptTopic}.handle(ctx, msg, h, confirmed)
	})
	if err == nil {
		return fresh, 0, nil
	}
	came.restore(msg)
	var failure *inboxstore.HandlerError
	if !errors.As(err, &failure) || stopping(ctx) { // the fault of the database, or of a stop
		return false, 0, err
	}
	attempts, err = i.failed(ctx, key, came, failure.Err)
	return false, attempts, err
}

// once runs fn once, and keeps the message as it was delivered, if that is configured.
func (i *Inbox) once(ctx context.Context, key inboxstore.Key, came delivered, fn func(ctx context.Context) error) (fresh bool, err error) {
	if i.history == nil {
		return i.store.Once(ctx, key, fn)
	}
	return i.history.OnceReceived(ctx, key, inboxstore.Received{
		Message: came.stored(), History: i.config.History, MaxPayload: i.config.HistoryPayload,
	}, fn)
}

// stopping says whether the delivery was cancelled, as by a router that closes. A deadline that has
// passed, such as that of Watermill's Timeout, belongs to the handler.
func stopping(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// key names the message to this consumer, and returns the id with which the message is published
// again for all of them.
func (i *Inbox) key(ctx context.Context, msg *message.Message) (key inboxstore.Key, carried string, err error) {
	key = inboxstore.Key{Consumer: i.config.Consumer, Topic: i.config.Topic, MessageID: i.config.MessageID(msg)}
	if key.Consumer == "" {
		key.Consumer = message.HandlerNameFromCtx(ctx)
	}
	if key.Consumer == "" {
		return key, "", errors.New("inbox: outside a router there is no handler name: set InboxConfig.Consumer")
	}
	if key.Topic == "" {
		key.Topic = message.SubscribeTopicFromCtx(ctx)
	}
	if key.Topic == "" && i.config.ReceiptTopic != "" {
		return key, "", fmt.Errorf("inbox of %.60q: outside a router a receipt cannot say of which topic its message is: set InboxConfig.Topic", key.Consumer)
	}
	if key.MessageID == "" {
		if key.MessageID, err = nameWithoutID(msg, i.config.WithoutID); err != nil {
			return key, "", fmt.Errorf("inbox of %.60q: %w", key.Consumer, err)
		}
		return key, cmp.Or(msg.UUID, key.MessageID), nil
	}
	return key, msg.UUID, nil
}

// doneTimeout bounds the write that a message is done of which MapError says so.
const doneTimeout = 30 * time.Second

// failed records a failure. It returns no error if the message is done or became a dead letter, so
// that it is acked. Otherwise it returns the number of attempts, 0 if this one could not be
// counted.
func (i *Inbox) failed(ctx context.Context, key inboxstore.Key, came delivered, cause error) (attempts int, err error) {
	if i.config.MapError != nil {
		msg := came.stored()
		msg.SetContext(ctx)
		if cause = spool.Recovered(func() error { return i.config.MapError(msg, cause) }); cause == nil {
			// As [inboxstore.Store.RecordFailure] does: the time of the delivery may be over.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), doneTimeout)
			defer cancel()
			_, err := i.once(ctx, key, came, func(context.Context) error { return nil })
			return 0, err
		}
	}
	i.tellOfOwner(ctx, key, came.stored())
	attempts, err = i.store.RecordFailure(ctx, key, cause)
	if err != nil {
		return 0, errors.Join(cause, err)
	}
	if !retries.Exhausted(i.config.Retry, attempts) && !verdict.IsPermanent(cause) {
		i.logger.Info("Postbox nacks a message after a pause, since its handler failed: "+cause.Error(), fields(key, came.stored()).Add(watermill.LogFields{
			"attempt": attempts, "attempts": i.config.Retry.Attempts,
		}))
		return attempts, cause
	}
	return 0, bury(ctx, i.store, key, came.stored(), attempts, cause)
}

// tellOfOwner logs once that failures count only if the owner of the transaction commits them. An
// outer inbox or a queue counts failures itself.
func (i *Inbox) tellOfOwner(ctx context.Context, key inboxstore.Key, msg *message.Message) {
	_, joined := postbox.TxFromContext(ctx)
	if !joined || ctx.Value(insideKey{}) != nil || report.From(ctx) != nil {
		return
	}
	i.uncounted.Do(func() {
		i.logger.Info("A handler failed in a transaction that its caller began. The failure is recorded in that transaction: commit it after an error too. "+
			"If you roll it back, no attempt is counted, and the message never becomes a dead letter", fields(key, msg))
	})
}

// fields name a message in the log.
func fields(key inboxstore.Key, msg *message.Message) watermill.LogFields {
	return watermill.LogFields{"consumer": key.Consumer, "topic": key.Topic, "message_uuid": cmp.Or(key.MessageID, msg.UUID)}
}
