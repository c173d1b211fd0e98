package oteltracing_test

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/router"
	"github.com/postbox-go/watermill-postbox/tracing/oteltracing"
)

// An order is written in an HTTP request, and billed by another handler. All of that is one trace.
func Example() {
	// A program has an exporter here, and sets provider and propagator with otel.SetTracerProvider
	// and otel.SetTextMapPropagator. Then the Config needs neither.
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	tracing := oteltracing.New(oteltracing.Config{Parent: true, TracerProvider: provider, Propagator: propagation.TraceContext{}})

	database, remove := openSQLite()
	defer remove()
	publisher, err := forwarder.NewPublisher(database, forwarder.PublisherConfig{}, nil)
	must(err)
	outbox, err := tracing.DecoratePublisher(publisher)
	must(err)
	defer func() { must(outbox.Close()) }()
	store, err := inboxstore.New(database, inboxstore.Config{}, nil)
	must(err)
	defer func() { must(store.Close()) }()
	channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
	broker, err := tracing.DecoratePublisher(channel)
	must(err)

	r, err := router.New(nil, router.Config{Store: store, Outbox: outbox}, nil)
	must(err)
	r.Router().AddMiddleware(tracing.Middleware) // before the handlers
	_, err = r.AddForwarder(database, broker, forwarder.Config{})
	must(err)
	billed := make(chan struct{})
	_, err = r.AddInboxHandler("billing", "orders", channel, "", func(*message.Message) ([]*message.Message, error) {
		close(billed)
		return nil, nil
	}, middleware.InboxConfig{})
	must(err)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(context.Background()) }()
	<-r.Running()

	ctx, request := provider.Tracer("shop").Start(context.Background(), "POST /orders", trace.WithSpanKind(trace.SpanKindServer))
	must(postbox.InTx(ctx, database.DB, func(ctx context.Context, _ *sql.Tx) error {
		return outbox.Publish("orders", message.NewMessageWithContext(ctx, postbox.NewMessageID(), []byte("order 1")))
	}))
	request.End()

	<-billed
	must(r.Close())
	must(<-ended)
	printTree(exporter.GetSpans(), trace.SpanID{}, 0)
	// Output:
	// server POST /orders
	//   producer send orders
	//     client send orders
	//     consumer process orders
}

// printTree prints the spans that have this parent, and those below them, in the order in which
// they began.
func printTree(spans tracetest.SpanStubs, parent trace.SpanID, depth int) {
	slices.SortFunc(spans, func(a, b tracetest.SpanStub) int {
		return cmp.Or(a.StartTime.Compare(b.StartTime), strings.Compare(a.Name, b.Name))
	})
	for _, span := range spans {
		if span.Parent.SpanID() == parent {
			fmt.Println(strings.Repeat("  ", depth) + span.SpanKind.String() + " " + span.Name)
			printTree(slices.Clone(spans), span.SpanContext.SpanID(), depth+1)
		}
	}
}

func openSQLite() (database postbox.Database, remove func()) {
	dir, err := os.MkdirTemp("", "postbox")
	must(err)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	must(err)
	db.SetMaxOpenConns(1)
	database = postbox.Database{DB: db, Dialect: postbox.SQLite}
	must(postbox.Migrate(context.Background(), database))
	return database, func() { _, _ = db.Close(), os.RemoveAll(dir) }
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
