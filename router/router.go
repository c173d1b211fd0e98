package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/health"
	"github.com/postbox-go/watermill-postbox/internal/given"
	"github.com/postbox-go/watermill-postbox/internal/lifecycle"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
)

// Router adds the handlers of an inbox, and forwarders, to a Watermill router, each with its
// middleware in the right order. Add them before the router runs; afterwards each method that adds
// something returns an error. It is safe for concurrent use.
type Router struct {
	router    *message.Router
	config    Config
	causation message.HandlerMiddleware // nil without a module
	logger    watermill.LoggerAdapter
	started   atomic.Bool // a Watermill router runs only the handlers that it has when it starts
	refusal   error       // why the router did not start; set and read by Run

	mu        sync.Mutex
	queues    []string            // queues that have a handler here
	fed       []string            // queues in which messages of a broker are stored
	consumers map[consumer]string // consumers of inboxes, and their handlers
	working   []health.Reporter   // subscribers, batches and forwarders
}

// Health tells whether the queues that have a handler here, and the forwarders that were added
// here, work, for package health.
func (r *Router) Health() []health.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	var states []health.State
	for _, reporter := range r.working {
		states = append(states, reporter.Health()...)
	}
	return states
}

func (r *Router) watch(reporter health.Reporter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.working = append(r.working, reporter)
}

// consumer is what two inboxes have in common if each message has its effect in one of them only.
type consumer struct{ name, topic string }

// closeTimeout is longer than what parts with default settings may take to stop.
const closeTimeout = 45 * time.Second

// New returns a Router on an existing Watermill router, or on a new one with default settings and a
// CloseTimeout of 45 s if router is nil. A nil logger logs nothing.
//
// The router does not start if a queue has messages and no handler. [Router.Run] says which. Run of
// the Watermill router puts "cannot initialize plugin" and the address of a function before that.
func New(router *message.Router, config Config, logger watermill.LoggerAdapter) (*Router, error) {
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("router: invalid config: %w", err)
	}
	if given.Nil(logger) {
		logger = watermill.NopLogger{}
	}
	if router == nil {
		var err error
		if router, err = message.NewRouter(message.RouterConfig{CloseTimeout: closeTimeout}, logger); err != nil {
			return nil, fmt.Errorf("router: %w", err)
		}
	}
	r := &Router{router: router, config: config, logger: logger, consumers: map[consumer]string{}}
	if config.Module != "" {
		var err error
		r.causation, err = middleware.Causation(middleware.CausationConfig{Module: config.Module, MaxHops: config.MaxHops})
		if err != nil {
			return nil, fmt.Errorf("router: %w", err)
		}
	}
	router.AddPlugin(func(*message.Router) error {
		r.started.Store(true)
		if err := r.check(context.Background()); err != nil {
			r.refusal = fmt.Errorf("postbox router: %w", err)
		}
		return r.refusal
	})
	return r, nil
}

// Router returns the Watermill router.
func (r *Router) Router() *message.Router { return r.router }

// Run runs the Watermill router. If a forwarder, a batch or a queue that was added here cannot go
// on, Run stops all the others and returns the error. That happens, for example, if its tables are
// missing. A forwarder or a batch that the program has closed by itself stops nothing else, unless
// it was the last handler.
func (r *Router) Run(ctx context.Context) error {
	ctx, failures := lifecycle.Collect(ctx)
	err := r.router.Run(ctx)
	if r.refusal != nil && errors.Is(err, r.refusal) {
		err = r.refusal // without what Watermill puts before it
	}
	return errors.Join(err, failures.End())
}

// Running is closed when the Watermill router runs.
func (r *Router) Running() <-chan struct{} { return r.router.Running() }

// Close closes the Watermill router, and with it all parts that were added here: running handlers
// end, and forwarders and batches hand back their lanes.
func (r *Router) Close() error { return r.router.Close() }

// AddInboxHandler adds a handler that has its effect once for each message, however often that is
// delivered: see [middleware.Inbox]. The messages that it returns go to publishTopic through the
// outbox; pass "" for a handler that returns none. Middleware added to the result works within the
// handler's transaction. Two handlers of a topic cannot have the same consumer, except with
// [Config.SharedConsumers].
func (r *Router) AddInboxHandler(
	name, topic string, subscriber message.Subscriber, publishTopic string, handler message.HandlerFunc, config middleware.InboxConfig,
) (*message.Handler, error) {
	if config.Outbox != nil || config.PublishTopic != "" {
		return nil, fmt.Errorf("add inbox handler %q: InboxConfig: leave Outbox and PublishTopic empty: they are router.Config.Outbox and the topic given to AddInboxHandler", name)
	}
	config.Outbox, config.PublishTopic = r.config.Outbox, publishTopic
	inbox, err := middleware.NewInbox(r.config.Store, config, r.logger)
	if err != nil {
		return nil, fmt.Errorf("add inbox handler %q: %w", name, err)
	}
	if err := r.claimConsumer(name, consumer{cmp.Or(config.Consumer, name), cmp.Or(config.Topic, topic)}); err != nil {
		return nil, fmt.Errorf("add inbox handler %q: %w", name, err)
	}
	added, err := r.add(name, topic, subscriber, publishTopic, handler)
	if err != nil {
		return nil, fmt.Errorf("add inbox handler %q: %w", name, err)
	}
	added.AddMiddleware(inbox.Middleware)
	r.trace(added)
	return added, nil
}

// AddQueueHandler adds a handler whose messages are stored and acked at once, and handled later.
// Messages of an ordering key are handled one at a time and in order. In a queue that is Unordered
// each message is handled by itself. The messages that the handler returns go to
// publishTopic through the outbox, in its transaction; pass "" for a handler that returns none.
func (r *Router) AddQueueHandler(
	name, topic string, subscriber message.Subscriber, publishTopic string, handler message.HandlerFunc, config QueueConfig,
) (*message.Handler, error) {
	if config.Queue == "" {
		config.Queue = name
	}
	if publishTopic != "" || config.ReceiptTopic != "" {
		config.Worker.Transactional = true
	}
	own, err := queue.NewSubscriber(r.config.Store, config.Worker, r.logger)
	if err != nil {
		return nil, fmt.Errorf("add queue handler %q: %w", name, err)
	}
	process := message.HandlerMiddleware(middleware.Process)
	if r.config.Outbox != nil || config.ReceiptTopic != "" {
		process, err = middleware.ProcessWith(middleware.ProcessConfig{
			Outbox: r.config.Outbox, PublishTopic: publishTopic, ReceiptTopic: config.ReceiptTopic, Consumer: name,
		})
		if err != nil {
			return nil, fmt.Errorf("add queue handler %q: %w", name, err)
		}
	}
	if err := r.addable(name, subscriber, publishTopic, handler); err != nil { // before anything stays on the router
		return nil, fmt.Errorf("add queue handler %q: %w", name, err)
	}
	if err := r.claim(config.Queue); err != nil {
		return nil, fmt.Errorf("add queue handler %q: %w", name, err)
	}
	if err := r.AddDeferral(storeName(name), topic, subscriber, config.Queue, config.Defer); err != nil {
		return nil, fmt.Errorf("add queue handler %q: %w", name, err)
	}
	added, err := r.add(name, config.Queue, own, publishTopic, handler)
	if err != nil {
		return nil, fmt.Errorf("add queue handler %q: %w", name, err)
	}
	added.AddMiddleware(process)
	r.watch(own)
	r.trace(added)
	return added, nil
}

// AddBatchHandler adds a handler whose messages are stored and acked at once, and handled later,
// many at a time: see [queue.Batch]. A batch handler publishes its messages itself, with the
// context that it gets.
func (r *Router) AddBatchHandler(
	name, topic string, subscriber message.Subscriber, handler queue.BatchHandler, config BatchConfig,
) (*queue.Batch, error) {
	if config.Queue == "" {
		config.Queue = name
	}
	batch, err := queue.NewBatch(r.config.Store, config.Queue, handler, config.Batch, r.logger)
	if err == nil {
		err = r.free(name)
	}
	if err != nil {
		return nil, fmt.Errorf("add batch handler %q: %w", name, err)
	}
	if err := r.claim(config.Queue); err != nil {
		return nil, fmt.Errorf("add batch handler %q: %w", name, err)
	}
	if err := r.AddDeferral(storeName(name), topic, subscriber, config.Queue, config.Defer); err != nil {
		return nil, fmt.Errorf("add batch handler %q: %w", name, err)
	}
	if err := lifecycle.Add(r.router, name, config.Queue, batch, r.logger); err != nil {
		return nil, fmt.Errorf("add batch handler %q: %w", name, err)
	}
	r.watch(batch)
	return batch, nil
}

// AddDeferral stores the messages of one more topic in a queue, by a handler with its own name. The
// queue must have a handler here, or be one of [Config.OtherQueues]; otherwise the router does not
// start.
func (r *Router) AddDeferral(
	name, topic string, subscriber message.Subscriber, queue string, config middleware.DeferConfig,
) error {
	store, err := middleware.DeferWith(r.config.Store, queue, config)
	if err != nil {
		return err
	}
	r.feed(queue)
	added, err := r.add(name, topic, subscriber, "", func(*message.Message) ([]*message.Message, error) { return nil, nil })
	if err != nil {
		return err
	}
	added.AddMiddleware(store)
	return nil
}

// AddForwarder adds a forwarder from the outbox in db to the publisher, which stays open when the
// router closes.
func (r *Router) AddForwarder(db postbox.Database, publisher message.Publisher, config forwarder.Config) (*forwarder.Forwarder, error) {
	if err := r.Open(); err != nil {
		return nil, fmt.Errorf("add forwarder: %w", err)
	}
	config.Router = r.router
	f, err := forwarder.New(db, publisher, config, r.logger)
	if err != nil {
		return nil, err
	}
	r.watch(f)
	return f, nil
}

// add adds a handler to the Watermill router. The middleware makes sure that no returned message
// gets to the router. The guard is part of the handler, so middleware that is added later stands
// outside of it.
func (r *Router) add(
	name, topic string, subscriber message.Subscriber, publishTopic string, handler message.HandlerFunc,
) (*message.Handler, error) {
	if err := r.addable(name, subscriber, publishTopic, handler); err != nil {
		return nil, err
	}
	handler = middleware.Guard(handler)
	if publishTopic == "" {
		return r.router.AddHandler(name, topic, subscriber, "", unused{}, handler), nil
	}
	return r.router.AddHandler(name, topic, subscriber, publishTopic, forwarder.KeepOpen(r.config.Outbox), handler), nil
}

// addable returns an error where add would.
func (r *Router) addable(name string, subscriber message.Subscriber, publishTopic string, handler message.HandlerFunc) error {
	if given.Nil(subscriber) || handler == nil {
		return fmt.Errorf("handler %q: the subscriber or the handler is nil", name)
	}
	if publishTopic != "" && r.config.Outbox == nil {
		return fmt.Errorf("handler %q publishes to topic %.300q: set Config.Outbox", name, publishTopic)
	}
	return r.free(name)
}

// free returns an error if a handler of this name cannot be added.
func (r *Router) free(name string) error {
	if err := r.Open(); err != nil {
		return err
	}
	return lifecycle.Free(r.router, name)
}

var errStarted = errors.New("the router is running or closed, so nothing can be added: add it before Run, or to another router")

// Open returns an error if the router has started or is closed: a handler that is added then would
// never run. It is for packages that add handlers of their own, such as receipts.
func (r *Router) Open() error {
	if r.started.Load() || r.router.IsRunning() || r.router.IsClosed() { // it may have been running when New got it
		return errStarted
	}
	return nil
}

// trace makes a handler extend the causation path, within its transaction.
func (r *Router) trace(added *message.Handler) {
	if r.causation != nil {
		added.AddMiddleware(r.causation)
	}
}

// claim notes that a queue has a handler here. A second handler is an error, since two would share
// the queue's messages.
func (r *Router) claim(queue string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.queues, queue) {
		return fmt.Errorf("the queue %.300q has a handler already: two would share its messages; use AddDeferral for a second topic", queue)
	}
	r.queues = append(r.queues, queue)
	return nil
}

// feed notes that messages are stored in a queue, which must have a handler when the router starts.
func (r *Router) feed(queue string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.fed, queue) {
		r.fed = append(r.fed, queue)
	}
}

// claimConsumer notes the handler of a consumer. Two handlers of one name share the messages: each
// message has its effect in one of them only.
func (r *Router) claimConsumer(handler string, of consumer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if other, taken := r.consumers[of]; taken && other != handler && !r.config.SharedConsumers {
		return fmt.Errorf("the handler %q is the consumer %q of topic %.300q already, so each message would have its effect in only one of the two: "+
			"if their effects differ, set another InboxConfig.Consumer, and give it a subscriber with a group or a queue of its own; if both do the same and share the topic, leave one of them out and run more processes "+
			"or raise the concurrency of the broker's subscriber, or set Config.SharedConsumers; with another Consumer, "+
			"a message that is delivered to both would have its effect twice", other, of.name, of.topic)
	}
	r.consumers[of] = handler
	return nil
}

// storeName is the name of the handler that feeds another one's queue.
func storeName(name string) string { return name + "_store" }
