package tracing_test

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/brokers/kafkabroker"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
	"github.com/postbox-go/watermill-postbox/router"
	"github.com/postbox-go/watermill-postbox/tracing/oteltracing"
)

// patience is how long a test waits for what should happen soon.
const patience = time.Minute

// broker is what the shop publishes to and subscribes to.
type broker struct {
	system           string
	orders, payments string // topics
	publisher        message.Publisher
	toCheck, toPay   message.Subscriber
	classify         func(error) postbox.ErrorClass
	batchSize        int
}

func goChannel() broker {
	channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
	return broker{system: "gochannel", orders: "orders", payments: "payments", publisher: channel, toCheck: channel, toPay: channel, classify: postbox.ClassifyNetwork, batchSize: 1}
}

// apacheKafka makes topics of the test's own.
func apacheKafka(t *testing.T, addresses string) broker {
	t.Helper()
	brokers, name := strings.Split(addresses, ","), "tracing."+postbox.NewMessageID()
	// A group for each topic: in a shared one, the second subscription would make Kafka deliver
	// messages again.
	subscribe := func(topic string) message.Subscriber {
		config := kafkabroker.DefaultSubscriberConfig(brokers, topic)
		config.InitializeTopicDetails.NumPartitions = 1
		subscriber, err := kafka.NewSubscriber(config, nil)
		require.NoError(t, err)
		require.NoError(t, subscriber.SubscribeInitialize(topic))
		return subscriber
	}
	on := broker{system: "kafka", orders: name + ".orders", payments: name + ".payments", classify: kafkabroker.Classify, batchSize: 100}
	on.toCheck, on.toPay = subscribe(on.orders), subscribe(on.payments)
	var err error
	on.publisher, err = kafkabroker.NewPublisher(kafkabroker.DefaultPublisherConfig(brokers), nil)
	require.NoError(t, err)
	return on
}

// shop is a service whose spans the test looks at.
type shop struct {
	broker broker
	db     *sql.DB
	tracer trace.Tracer
	spans  *tracetest.InMemoryExporter
	outbox message.Publisher
	store  *inboxstore.Store
	router *router.Router
	paid   chan struct{}
	ended  chan error
}

var errSlow = errors.New("the check takes too long")

func open(t *testing.T, on broker, parent bool) *shop {
	t.Helper()
	database := testdb.SQLite(t)
	require.NoError(t, postbox.Migrate(t.Context(), database.Postbox()))
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	tracing := oteltracing.New(oteltracing.Config{System: on.system, Parent: parent, TracerProvider: provider, Propagator: propagation.TraceContext{}})
	s := &shop{broker: on, db: database.DB, tracer: provider.Tracer("shop"), spans: spans, paid: make(chan struct{}, 1), ended: make(chan error, 1)}

	publisher, err := forwarder.NewPublisher(database.Postbox(), forwarder.PublisherConfig{}, nil)
	require.NoError(t, err)
	s.outbox, err = tracing.DecoratePublisher(publisher)
	require.NoError(t, err)
	s.store, err = inboxstore.New(database.Postbox(), inboxstore.Config{}, nil)
	require.NoError(t, err)
	s.router, err = router.New(nil, router.Config{Store: s.store, Outbox: s.outbox}, nil)
	require.NoError(t, err)
	s.router.Router().AddMiddleware(tracing.Middleware)
	toBroker, err := tracing.DecoratePublisher(on.publisher)
	require.NoError(t, err)
	_, err = s.router.AddForwarder(database.Postbox(), toBroker, forwarder.Config{Classify: on.classify, BatchSize: on.batchSize})
	require.NoError(t, err)

	checks := 0
	_, err = s.router.AddInboxHandler("check", on.orders, on.toCheck, on.payments, func(*message.Message) ([]*message.Message, error) {
		if checks++; checks == 1 {
			return nil, errSlow
		}
		return []*message.Message{message.NewMessage(postbox.NewMessageID(), []byte("checked"))}, nil
	}, middleware.InboxConfig{Retry: postbox.RetryProfile{Base: time.Millisecond, Cap: time.Millisecond}})
	require.NoError(t, err)
	_, err = s.router.AddQueueHandler("pay", on.payments, on.toPay, "", func(msg *message.Message) ([]*message.Message, error) {
		_, span := s.tracer.Start(msg.Context(), "take the money")
		defer span.End()
		select {
		case s.paid <- struct{}{}:
		default: // it runs again if the commit fails
		}
		return nil, nil
	}, router.QueueConfig{Worker: queue.Config{Transactional: true}})
	require.NoError(t, err)
	go func() { s.ended <- s.router.Run(context.Background()) }()
	<-s.router.Running()
	return s
}

// order sends the request, and waits until the order is paid.
func (s *shop) order(t *testing.T) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, span := s.tracer.Start(r.Context(), r.Method+" "+r.URL.Path, trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		err := postbox.InTx(ctx, s.db, func(ctx context.Context, _ *sql.Tx) error {
			return s.outbox.Publish(s.broker.orders, message.NewMessageWithContext(ctx, postbox.NewMessageID(), []byte("order")))
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/orders", http.NoBody)
	require.NoError(t, err)
	answer, err := server.Client().Do(request)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)
	select {
	case <-s.paid:
	case <-time.After(patience):
		require.FailNow(t, "the order is not paid", "%v", s.spans.GetSpans())
	}
}

// close ends the service, and with it all spans.
func (s *shop) close(t *testing.T) {
	t.Helper()
	require.NoError(t, s.router.Close())
	require.NoError(t, <-s.ended)
	require.NoError(t, s.store.Close())
	require.NoError(t, s.outbox.Close())
	require.NoError(t, s.broker.publisher.Close())
}
