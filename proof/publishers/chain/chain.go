// Package chain tries a whole chain with brokers that Watermill has publishers for: outbox, broker,
// inbox, effect. The broker is stopped and started while messages are on their way, the leader of a
// cluster is killed, handlers fail now and then, and acks are lost. What the database committed has
// its effect once, and each key keeps its order.
package chain

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/proof/endurance/place"
	"github.com/postbox-go/watermill-postbox/router"
)

// Broker is one that can be tried.
type Broker struct {
	Name string

	open func(ctx context.Context, topic string, logger watermill.LoggerAdapter) (*broker, error)
}

// Brokers returns all of them.
func Brokers() []Broker {
	return []Broker{{"nats-jetstream", openNATS}, {"redis-streams", openRedisGroup}, {"redis-streams-reader", openRedisReader}, {"google-pubsub", openGoogle}, {"sql", openSQLv3}, {"sql-v4", openSQLv4}, {"http", openHTTP}}
}

// broker runs, and has its clients.
type broker struct {
	publisher  message.Publisher
	subscriber message.Subscriber
	// serve, if set, is called when the subscription is there, and opens the broker to publishers.
	serve  func(ctx context.Context) error
	faults []fault
	// unordered says that the broker promises no order when it is broken.
	unordered bool
	close     func() error
}

// fault is a way to break the broker.
type fault struct {
	name          string
	begin, repair func(ctx context.Context) error
	// survived says that messages get through without a repair.
	survived bool
}

// Config says how much is tried.
type Config struct {
	Rounds   int // each fault once in a round
	Messages int // that are written around a fault
	Logger   watermill.LoggerAdapter
}

// Result is what a trial has shown.
type Result struct {
	place.Account

	Unordered bool           // the broker promises no order
	Faults    map[string]int // how often each came
	Dead      int
	// Nacks are failures of the handler, and LostAcks are nacks after the effect was committed.
	// Each of those has come again.
	Nacks, LostAcks int
	FailedCalls     int // of the publisher
	Took            time.Duration
}

func (r Result) String() string {
	return fmt.Sprintf("outages=%d leaders_killed=%d written=%d applied=%d lost=%d applied_twice=%d order_violations=%d dead=%d nacks=%d lost_acks=%d failed_calls=%d took=%s",
		r.Faults[outage], r.Faults[leaderKilled], r.Committed, r.Applied, r.Lost, r.Twice, r.Disordered, r.Dead, r.Nacks, r.LostAcks,
		r.FailedCalls, r.Took.Round(100*time.Millisecond))
}

// Fault returns what is wrong with the result.
func (r Result) Fault() error {
	if r.Dead > 0 {
		return fmt.Errorf("%d messages are dead", r.Dead)
	}
	account := r.Account
	if r.Unordered {
		account.Disordered = 0
	}
	return account.Fault()
}

const (
	outage, leaderKilled = "outage", "leader killed"

	consumer             = "inbox"
	keys, payload        = 8, 100
	connections          = 24
	nackEach, lostEach   = 7, 11 // messages
	retryBase, retryCap  = 10 * time.Millisecond, 50 * time.Millisecond
	probeMin, probeMax   = 20 * time.Millisecond, 200 * time.Millisecond
	patience             = 2 * time.Minute // until the next thing happens
	pollEvery            = 10 * time.Millisecond
	inFlightPart         = 4 // of the messages are applied when the fault begins
	failedCallsPerOutage = 3
)

// Run tries a broker.
func Run(ctx context.Context, b Broker, config Config) (r Result, err error) {
	if config.Logger == nil {
		config.Logger = watermill.NopLogger{}
	}
	began := time.Now()
	where, err := place.Open(ctx, connections)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, where.Close()) }()
	topic := "chain_" + strconv.FormatInt(time.Now().UnixNano(), 36)
	to, err := b.open(ctx, topic, config.Logger)
	if err != nil {
		return r, fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, to.close()) }()
	t := &trial{
		config: config, place: where, to: to, topic: topic, filling: place.Filling(payload),
		failed: map[string]bool{}, done: map[string]bool{}, owed: map[string]bool{}, faults: map[string]int{},
	}
	stop, err := t.start(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	for range config.Rounds {
		for _, f := range to.faults {
			if err := t.suffer(ctx, f); err != nil {
				return r, fmt.Errorf("%s: %w: %s", f.name, err, t.state())
			}
		}
	}
	r, err = t.result(ctx)
	r.Took = time.Since(began)
	return r, err
}

type trial struct {
	config  Config
	place   *place.Place
	to      *broker
	topic   string
	outbox  *forwarder.Publisher
	filling []byte

	mu          sync.Mutex
	written     int
	failed      map[string]bool // messages whose handler has failed once
	done        map[string]bool // messages whose effect is committed
	owed        map[string]bool // messages whose ack was lost, and that have to come again
	nacks, lost int
	failedCalls int
	faults      map[string]int
}

// start lets the chain run until stop is called.
func (t *trial) start(ctx context.Context) (stop func() error, err error) {
	db := postbox.Database{DB: t.place.DB, Dialect: postbox.PostgreSQL}
	if t.outbox, err = forwarder.NewPublisher(db, forwarder.PublisherConfig{}, t.config.Logger); err != nil {
		return nil, err
	}
	store, err := inboxstore.New(db, inboxstore.Config{}, t.config.Logger)
	if err != nil {
		return nil, err
	}
	running, err := router.New(nil, router.Config{Store: store, Outbox: t.outbox}, t.config.Logger)
	if err != nil {
		return nil, err
	}
	running.Router().AddMiddleware(t.loseAcks)
	if _, err := running.AddForwarder(db, counted{t.to.publisher, t}, forwarder.Config{
		Tuning: postbox.Tuning{ProbeMin: probeMin, ProbeMax: probeMax},
		Retry:  postbox.RetryProfile{Base: retryBase, Cap: retryCap},
	}); err != nil {
		return nil, err
	}
	inbox := middleware.InboxConfig{Retry: postbox.RetryProfile{Base: retryBase, Cap: retryCap}}
	if _, err := running.AddInboxHandler(consumer, t.topic, t.to.subscriber, "", t.apply, inbox); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- running.Run(context.WithoutCancel(ctx)) }()
	stop = func() error {
		return errors.Join(running.Close(), <-ended, store.Close(), t.outbox.Close(), t.to.publisher.Close())
	}
	select {
	case <-running.Running():
	case err := <-ended:
		return nil, fmt.Errorf("start the chain: %w", err)
	}
	if t.to.serve != nil {
		if err := t.to.serve(ctx); err != nil {
			return nil, errors.Join(err, stop())
		}
	}
	return stop, nil
}

// counted counts the calls of a publisher that fail.
type counted struct {
	message.Publisher

	trial *trial
}

// Publish implements message.Publisher.
func (c counted) Publish(topic string, messages ...*message.Message) error {
	err := c.Publisher.Publish(topic, messages...)
	if err != nil {
		c.trial.mu.Lock()
		c.trial.failedCalls++
		c.trial.mu.Unlock()
	}
	return err
}

// apply is the handler. It fails once for some messages, after it has written their effect.
func (t *trial) apply(msg *message.Message) ([]*message.Message, error) {
	tx, ok := postbox.TxFromContext(msg.Context())
	if !ok {
		return nil, postbox.ErrNoTransaction
	}
	key, seq, err := place.Number(msg)
	if err != nil {
		return nil, postbox.Permanent(err)
	}
	if err := place.Apply(msg.Context(), tx, consumer, key, seq); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if seq%nackEach == 0 && !t.failed[msg.UUID] {
		t.failed[msg.UUID] = true
		t.nacks++
		return nil, errors.New("the handler has failed")
	}
	return nil, nil
}

// loseAcks nacks some messages whose effect the inbox has committed, once each.
func (t *trial) loseAcks(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := h(msg)
		if err != nil {
			return produced, err
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.done[msg.UUID] {
			delete(t.owed, msg.UUID)
			return produced, nil
		}
		t.done[msg.UUID] = true
		if len(t.done)%lostEach == 0 {
			t.owed[msg.UUID] = true
			t.lost++
			return nil, errors.New("the ack is lost")
		}
		return produced, nil
	}
}

// suffer breaks the broker while messages are on their way, and writes as many again before it is
// repaired.
func (t *trial) suffer(ctx context.Context, f fault) error {
	before := t.count()
	half := t.config.Messages / 2 //nolint:mnd // a half
	var writing errgroup.Group
	writing.Go(func() error { return t.write(ctx, half) })
	err := t.await(ctx, "messages before it", func() bool { return t.count().done >= before.done+t.config.Messages/inFlightPart })
	if err != nil {
		return errors.Join(err, writing.Wait())
	}
	err = f.begin(ctx)
	broken := t.count()
	if err = errors.Join(err, writing.Wait()); err != nil {
		return err
	}
	if err := t.write(ctx, t.config.Messages-half); err != nil {
		return err
	}
	t.faults[f.name]++
	if f.survived {
		err = t.await(ctx, "all messages without a repair", t.allDone)
	} else {
		err = t.await(ctx, "calls that fail", func() bool { return t.count().failedCalls >= broken.failedCalls+failedCallsPerOutage })
	}
	if err = errors.Join(err, f.repair(ctx)); err != nil {
		return err
	}
	return t.await(ctx, "all messages", t.allDone)
}

// write puts messages into the outbox, each in a transaction of its own with its order.
func (t *trial) write(ctx context.Context, messages int) error {
	for range messages {
		t.mu.Lock()
		number := t.written
		t.written++
		t.mu.Unlock()
		key, seq := fmt.Sprint("key-", number%keys), int64(1+number/keys)
		err := postbox.InTx(ctx, t.place.DB, func(ctx context.Context, tx *sql.Tx) error {
			if err := place.Order(ctx, tx, key, seq); err != nil {
				return err
			}
			msg := place.Message(key, seq, t.filling)
			msg.SetContext(ctx)
			return t.outbox.Publish(t.topic, msg)
		})
		if err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	return nil
}

type counts struct{ written, done, owed, failedCalls int }

func (t *trial) count() counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return counts{t.written, len(t.done), len(t.owed), t.failedCalls}
}

func (t *trial) state() string { return fmt.Sprintf("%+v", t.count()) }

// allDone says that every message had its effect, and that each whose ack was lost has come again.
func (t *trial) allDone() bool {
	now := t.count()
	return now.done == now.written && now.owed == 0
}

func (t *trial) await(ctx context.Context, what string, reached func() bool) error {
	if err := poll(ctx, func() (bool, error) { return reached(), nil }); err != nil {
		return fmt.Errorf("wait for %s: %w", what, err)
	}
	return nil
}

func (t *trial) result(ctx context.Context) (r Result, err error) {
	pending, err := t.place.Pending(ctx)
	if err != nil {
		return r, err
	}
	if r.Account, err = t.place.Account(ctx, consumer); err != nil {
		return r, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r.Unordered = t.to.unordered
	r.Faults, r.Dead, r.Nacks, r.LostAcks, r.FailedCalls = t.faults, pending.Dead, t.nacks, t.lost, t.failedCalls
	return r, nil
}

// poll repeats a question until the answer is yes, an error, or patience ends.
func poll(ctx context.Context, question func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
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
