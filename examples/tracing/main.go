// Tracing follows an order through a shop and prints its spans as a tree: from the HTTP request
// that writes the order, through the outbox, the forwarder, the broker and a queue, to the handlers
// that take the money and tell the customer.
//
// Read this file from top to bottom, and then shop.go, the service. tree.go prints.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/postbox-go/watermill-postbox/examples/internal/pipes"
	"github.com/postbox-go/watermill-postbox/tracing/oteltracing"
)

// settings say where things are, and how spans are related.
type settings struct {
	pipes.Settings
	parent bool
}

func main() {
	var s settings
	on := pipes.Flags()
	flag.BoolVar(&s.parent, "parent", true, "make all spans of an order one trace; without it, each handler begins a trace with a link to the order's")
	flag.Parse()
	s.Settings = *on
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, s); err != nil {
		fmt.Fprintln(os.Stderr, "tracing:", err)
		os.Exit(1)
	}
}

// run serves one order, and prints the spans that were made of it.
func run(ctx context.Context, out io.Writer, s settings) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	open, err := s.Open(ctx, prefix)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, open.Close()) }()
	if _, err := open.DB.ExecContext(ctx, tables); err != nil {
		return fmt.Errorf("make tables: %w", err)
	}

	// A service has the exporter of its backend here, in sdktrace.WithBatcher. It calls
	// otel.SetTracerProvider and otel.SetTextMapPropagator once, and then the Config of a Tracing
	// needs neither of the two.
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	tracing := oteltracing.New(oteltracing.Config{
		System: s.Broker, Parent: s.parent, TracerProvider: provider, Propagator: propagation.TraceContext{},
	})
	shop, err := newShop(open, tracing, provider.Tracer("shop"))
	if err != nil {
		return err
	}
	if err := shop.start(ctx); err != nil {
		return errors.Join(err, shop.close())
	}
	err = shop.sell(ctx)
	if err := errors.Join(err, shop.close()); err != nil { // all spans have ended then
		return err
	}
	printTree(out, spans.GetSpans())
	return nil
}
