package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/proof/endurance/place"
)

const (
	// attempts, and the pauses between them, are few and short: a rule that counted the failures of
	// an outage would have all messages buried within its first seconds.
	attempts             = 3
	retryBase, retryCap  = 10 * time.Millisecond, 20 * time.Millisecond
	probeMin, probeMax   = 20 * time.Millisecond, 200 * time.Millisecond
	keys                 = 30
	connections          = 8
	outageCalls          = 3 * attempts     // that must fail before the outage may end
	outageLimit          = time.Minute      // which ends it all the same, with an error
	recovery             = 90 * time.Second // from the return of the broker until all is published
	pollEvery            = 50 * time.Millisecond
	numberField, keyName = "number", "key-"
)

type options struct {
	outage  time.Duration
	verbose bool
}

// trial is one outage of one broker.
type trial struct {
	server   server
	place    *place.Place
	outbox   *forwarder.Publisher
	topic    string
	sent     []sent
	watched  *watched
	logger   watermill.LoggerAdapter
	finished <-chan error // the forwarder's end
}

// runTrial proves that the broker works, stops it, writes so many messages, and starts it again.
func runTrial(ctx context.Context, s server, waiting int, o options) (r result, err error) {
	t := &trial{server: s, topic: "trial_" + strconv.FormatInt(time.Now().UnixNano(), 36), logger: logger(o.verbose)}
	if err := t.prepareTopic(); err != nil {
		return r, fmt.Errorf("prepare the topic: %w", err)
	}
	if t.place, err = place.Open(ctx, connections); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, t.place.Close()) }()
	stop, err := t.forward(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, stop()) }()

	if err := t.write(ctx, 1); err != nil {
		return r, err
	}
	if err := t.drained(ctx); err != nil {
		return r, fmt.Errorf("before the outage: %w", err)
	}
	if err := t.suffer(ctx, waiting, o.outage); err != nil {
		return r, err
	}
	returned := time.Now()
	notDrained := t.drained(ctx)
	r = result{failures: t.watched.failures(), after: time.Since(returned), errors: t.watched.errors()}
	if err := t.account(ctx, &r); err != nil {
		return r, err
	}
	if r.dead == 0 && notDrained != nil {
		return r, fmt.Errorf("after the outage: %w: %s", notDrained, r)
	}
	return r, t.read(ctx, &r)
}

// prepareTopic makes what must be there before anything is published, such as a queue.
func (t *trial) prepareTopic() error {
	subscriber, err := t.server.subscriber(t.logger)
	if err != nil {
		return err
	}
	if initializer, needed := subscriber.(message.SubscribeInitializer); needed {
		err = initializer.SubscribeInitialize(t.topic)
	}
	return errors.Join(err, subscriber.Close())
}

// forward starts a forwarder that knows nothing of the broker: it has no classifier for it.
func (t *trial) forward(ctx context.Context) (stop func() error, err error) {
	publisher, err := t.server.publisher(t.logger)
	if err != nil {
		return nil, err
	}
	t.watched = newWatched(publisher)
	fwd, err := forwarder.New(postbox.Database{DB: t.place.DB, Dialect: postbox.PostgreSQL}, t.watched, forwarder.Config{
		Tuning: postbox.Tuning{ProbeMin: probeMin, ProbeMax: probeMax},
		Retry:  postbox.RetryProfile{Attempts: attempts, Base: retryBase, Cap: retryCap},
	}, t.logger)
	if err != nil {
		return nil, errors.Join(err, publisher.Close())
	}
	finished := make(chan error, 1)
	go func() { finished <- fwd.Run(ctx) }()
	t.finished = finished
	if t.outbox, err = forwarder.NewPublisher(postbox.Database{DB: t.place.DB, Dialect: postbox.PostgreSQL}, forwarder.PublisherConfig{}, t.logger); err != nil {
		return nil, errors.Join(err, fwd.Close(), publisher.Close())
	}
	return func() error { return errors.Join(fwd.Close(), <-finished, t.outbox.Close(), publisher.Close()) }, nil
}

// suffer is the outage, in which messages are written.
func (t *trial) suffer(ctx context.Context, waiting int, least time.Duration) error {
	if err := t.server.stop(ctx); err != nil {
		return err
	}
	began := time.Now()
	if err := t.write(ctx, waiting); err != nil {
		return errors.Join(err, t.server.start(ctx))
	}
	limit, cancel := context.WithTimeout(ctx, outageLimit)
	defer cancel()
	err := poll(limit, func() (bool, error) {
		pending, err := t.place.Pending(limit)
		enough := t.watched.failures() >= outageCalls || pending.Messages == 0 // all of them dead
		return time.Since(began) >= least && enough, err
	})
	if err != nil {
		err = fmt.Errorf("only %d calls have failed in the outage: %w", t.watched.failures(), err)
	}
	return errors.Join(err, t.server.start(ctx))
}

// write puts messages into the outbox, each in a transaction of its own.
func (t *trial) write(ctx context.Context, messages int) error {
	for range messages {
		next := sent{key: keyName + strconv.Itoa(len(t.sent)%keys), number: 1 + len(t.sent)/keys}
		msg := message.NewMessage(postbox.NewMessageID(), []byte(`{}`))
		msg.Metadata.Set(postbox.MetadataOrderingKey, next.key)
		msg.Metadata.Set(numberField, strconv.Itoa(next.number))
		err := postbox.InTx(ctx, t.place.DB, func(ctx context.Context, _ *sql.Tx) error {
			msg.SetContext(ctx)
			return t.outbox.Publish(t.topic, msg)
		})
		if err != nil {
			return err
		}
		t.sent = append(t.sent, next)
	}
	return nil
}

// drained waits until nothing is pending. Dead letters are an error.
func (t *trial) drained(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, recovery)
	defer cancel()
	return t.place.AwaitEmpty(ctx)
}

// account asks the database what has become of the messages.
func (t *trial) account(ctx context.Context, r *result) error {
	pending, err := t.place.Pending(ctx)
	if err != nil {
		return err
	}
	r.dead = pending.Dead
	const counted = "SELECT COUNT(*) FROM postbox_failures WHERE attempt > 0"
	return t.place.DB.QueryRowContext(ctx, counted).Scan(&r.counted)
}

// read takes everything that the broker has, until all is there or it has been silent for a while.
func (t *trial) read(ctx context.Context, r *result) error {
	const silence = 15 * time.Second
	subscriber, err := t.server.subscriber(t.logger)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	messages, err := subscriber.Subscribe(ctx, t.topic)
	if err != nil {
		return errors.Join(err, subscriber.Close())
	}
	got := newReceived()
	quiet := time.NewTimer(silence)
	defer quiet.Stop()
	for got.missing(t.sent) > 0 {
		select {
		case msg, open := <-messages:
			if !open {
				return errors.Join(errors.New("the subscription has ended"), ctx.Err())
			}
			number, err := strconv.Atoi(msg.Metadata.Get(numberField))
			if err != nil {
				return err
			}
			got.add(sent{msg.Metadata.Get(postbox.MetadataOrderingKey), number})
			msg.Ack()
			quiet.Reset(silence)
			continue
		case <-quiet.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		break
	}
	r.published, r.missing, r.orderViolations = len(got.seen), got.missing(t.sent), got.violations
	cancel()
	return subscriber.Close()
}

// poll repeats a question until the answer is yes, an error, or ctx ends.
func poll(ctx context.Context, question func() (bool, error)) error {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		if yes, err := question(); yes || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
