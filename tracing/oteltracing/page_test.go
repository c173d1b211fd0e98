package oteltracing_test

import (
	"context"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/router"
	"github.com/postbox-go/watermill-postbox/tracing/oteltracing"
)

// The code of docs/tracing.md, which needs only to compile.
var _ = pageRouter

func pageRouter(
	database postbox.Database, store *inboxstore.Store, outboxPublisher, kafkaPublisher message.Publisher, subscriber message.Subscriber,
	handler func(context.Context, []*message.Message) error, config router.BatchConfig, logger watermill.LoggerAdapter,
) {
	tracing := oteltracing.New(oteltracing.Config{System: "kafka"})

	outbox, err := tracing.DecoratePublisher(outboxPublisher) // the publisher of the outbox
	must(err)
	broker, err := tracing.DecoratePublisher(kafkaPublisher) // the publisher that the forwarder gets
	must(err)

	r, err := router.New(nil, router.Config{Store: store, Outbox: outbox}, logger)
	must(err)
	r.Router().AddMiddleware(tracing.Middleware) // before the handlers
	_, err = r.AddForwarder(database, broker, forwarder.Config{})
	must(err)
	_, err = r.AddBatchHandler("report", "orders", subscriber, tracing.BatchHandler("report", handler), config)
	must(err)
}
