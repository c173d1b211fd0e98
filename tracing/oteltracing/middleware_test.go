package oteltracing_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
	"github.com/postbox-go/watermill-postbox/router"
	"github.com/postbox-go/watermill-postbox/tracing/oteltracing"
)

// quick are attempts without the usual pauses.
func quick(attempts int) postbox.RetryProfile {
	return postbox.RetryProfile{Attempts: attempts, Base: time.Millisecond, Cap: time.Millisecond}
}

var errRefused = errors.New("the bank refuses")

// failing returns a handler that fails so many times, and then returns what the next one does.
func failing(times int, next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		if times--; times >= 0 {
			return nil, errRefused
		}
		return next(msg)
	}
}

func done(*message.Message) ([]*message.Message, error) { return nil, nil }

// served is a shop with a broker, a forwarder and a router that is traced.
type served struct {
	*shop

	broker *gochannel.GoChannel
	router *router.Router
}

// serve starts a shop whose handlers add has added.
func serve(t *testing.T, tracing *oteltracing.Tracing, add func(s *served)) *served {
	t.Helper()
	s := &served{shop: newShop(t, tracing), broker: gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)}
	var err error
	s.router, err = router.New(nil, router.Config{Store: s.store, Outbox: s.outbox}, nil)
	require.NoError(t, err)
	s.router.Router().AddMiddleware(tracing.Middleware)
	add(s)
	broker, err := tracing.DecoratePublisher(s.broker)
	require.NoError(t, err)
	_, err = s.router.AddForwarder(s.database, broker, forwarder.Config{Tuning: postbox.Tuning{PollMin: time.Millisecond, PollMax: tick}})
	require.NoError(t, err)
	background(t, s.router.Run)
	t.Cleanup(func() { require.NoError(t, s.router.Close()) })
	<-s.router.Running()
	return s
}

func (s *served) order(ctx context.Context, t *testing.T) *message.Message {
	t.Helper()
	msg := message.NewMessage(postbox.NewMessageID(), []byte("order"))
	require.NoError(t, s.publish(ctx, msg))
	return msg
}

func TestMiddleware_each_attempt_is_a_span_of_the_same_trace(t *testing.T) {
	t.Parallel()
	for name, parent := range map[string]bool{"parent": true, "link": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tracing, spans := record(t, oteltracing.Config{System: "memory", Parent: parent})
			s := serve(t, tracing, func(s *served) {
				_, err := s.router.AddInboxHandler("billing", "orders", s.broker, "", failing(2, done), middleware.InboxConfig{Retry: quick(5)})
				require.NoError(t, err)
			})
			var msg *message.Message
			request := spans.during("POST /orders", func(ctx context.Context) { msg = s.order(ctx, t) })
			processed := spans.await("process orders", 3)
			created := spans.named("send orders")[0]
			for i, span := range processed {
				require.Equal(t, []trace.SpanID{created.SpanContext.SpanID()}, linked(span))
				require.Equal(t, request.TraceID(), span.Links[0].SpanContext.TraceID())
				require.Equal(t, parent, span.SpanContext.TraceID() == request.TraceID())
				require.Equal(t, parent, span.Parent.SpanID() == created.SpanContext.SpanID())
				require.Equal(t, trace.SpanKindConsumer, span.SpanKind)
				require.Equal(t, i < 2, span.Status.Code == codes.Error)
			}
			require.Equal(t, "the bank refuses", processed[0].Status.Description)
			require.Equal(t, "*errors.errorString", value(processed[0], "error.type"))
			attributes, wait := attributesOf(processed[2])
			require.Equal(t, map[string]any{
				"messaging.system": "memory", "messaging.operation.name": "process", "messaging.operation.type": "process",
				"messaging.destination.name": "orders", "messaging.message.id": msg.UUID, "postbox.handler.name": "billing",
			}, attributes)
			require.Positive(t, wait)
		})
	}
}

// A duplicate runs no handler, and its span says that it came.
func TestMiddleware_a_duplicate_has_a_span(t *testing.T) {
	t.Parallel()
	tracing, spans := record(t, oteltracing.Config{})
	s := serve(t, tracing, func(s *served) {
		_, err := s.router.AddInboxHandler("billing", "orders", s.broker, "", done, middleware.InboxConfig{})
		require.NoError(t, err)
	})
	for range 2 {
		require.NoError(t, s.broker.Publish("orders", message.NewMessage("1", nil)))
	}
	for _, span := range spans.await("process orders", 2) {
		require.Equal(t, codes.Unset, span.Status.Code)
		require.Empty(t, span.Links, "the message was published without a span")
		require.False(t, span.Parent.IsValid())
		_, wait := attributesOf(span)
		require.InDelta(t, -1, wait, 0, "nothing says when it was created")
	}
}

// An inbox acks a message that it has made a dead letter. The second Middleware, within the inbox,
// tells the first one why.
func TestMiddleware_within_an_inbox_tells_the_one_outside_of_it(t *testing.T) {
	t.Parallel()
	for name, within := range map[string]bool{"outside alone": false, "both": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tracing, spans := record(t, oteltracing.Config{})
			s := serve(t, tracing, func(s *served) {
				added, err := s.router.AddInboxHandler("billing", "orders", s.broker, "", failing(2, done), middleware.InboxConfig{Retry: quick(2)})
				require.NoError(t, err)
				if within {
					added.AddMiddleware(tracing.Middleware)
				}
			})
			require.NoError(t, s.broker.Publish("orders", message.NewMessage("1", nil)))
			processed := spans.await("process orders", 2)
			require.Len(t, processed, 2, "the inner one makes no span")
			require.Equal(t, codes.Error, processed[0].Status.Code)
			require.Equal(t, within, processed[1].Status.Code == codes.Error)
		})
	}
}

// An inbox turns the panic of a handler into a failure. The second Middleware tells the first one
// of it before that.
func TestMiddleware_within_an_inbox_tells_the_one_outside_of_it_of_a_panic(t *testing.T) {
	t.Parallel()
	tracing, spans := record(t, oteltracing.Config{})
	s := newShop(t, tracing)
	inbox, err := middleware.NewInbox(s.store, middleware.InboxConfig{Consumer: "billing", Topic: "orders", Retry: quick(1)}, nil)
	require.NoError(t, err)
	handler := tracing.Middleware(inbox.Middleware(tracing.Middleware(func(*message.Message) ([]*message.Message, error) { panic("no bank") })))
	_, err = handler(message.NewMessage("1", nil))
	require.NoError(t, err, "it is a dead letter")
	processed := spans.named("process ")
	require.Len(t, processed, 1)
	require.Equal(t, codes.Error, processed[0].Status.Code)
	require.Equal(t, "it panicked, or ended its goroutine", processed[0].Status.Description)
}

// What a handler returns belongs to its span, also if the middleware is inside of the inbox.
func TestMiddleware_returned_messages_are_sent_in_the_span_of_the_handler(t *testing.T) {
	t.Parallel()
	produce := func(*message.Message) ([]*message.Message, error) {
		return []*message.Message{message.NewMessage(postbox.NewMessageID(), nil)}, nil
	}
	for name, inside := range map[string]bool{"outside": false, "inside": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tracing, spans := record(t, oteltracing.Config{Parent: true})
			s := newShop(t, tracing)
			inbox, err := middleware.NewInbox(s.store, middleware.InboxConfig{Consumer: "billing", Topic: "orders", Outbox: s.outbox, PublishTopic: "bills"}, nil)
			require.NoError(t, err)
			handler := tracing.Middleware(inbox.Middleware(produce))
			if inside {
				handler = inbox.Middleware(tracing.Middleware(produce))
			}
			msg := message.NewMessage("1", nil)
			msg.Metadata.Set("traceparent", parentOf)
			msg.Metadata.Set("baggage", "tenant=seven")
			_, err = handler(msg)
			require.NoError(t, err)
			sent, processed := spans.named("send bills")[0], spans.named("process ")[0]
			require.Equal(t, processed.SpanContext.SpanID(), sent.Parent.SpanID())
			require.Equal(t, "0af7651916cd43dd8448eb211c80319c", sent.SpanContext.TraceID().String())
			var metadata string
			require.NoError(t, s.database.DB.QueryRowContext(t.Context(), "SELECT metadata FROM postbox_messages").Scan(&metadata))
			require.Contains(t, metadata, "tenant=seven")
		})
	}
}

// A handler may pass its own message on. It is sent in the span of the handler, although the
// message gets its own context back.
func TestMiddleware_a_handler_can_return_its_own_message(t *testing.T) {
	t.Parallel()
	tracing, spans := record(t, oteltracing.Config{})
	inner := &captured{}
	publisher, err := tracing.DecoratePublisher(inner)
	require.NoError(t, err)
	type key struct{}
	other := message.NewMessage("2", nil)
	var returned []*message.Message
	handler := tracing.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		msg.SetContext(context.WithValue(msg.Context(), key{}, "of the handler"))
		msg.Metadata.Set("passed", "on")
		returned = []*message.Message{msg, nil, other}
		return returned, nil
	})
	msg := message.NewMessage("1", []byte("order"))
	produced, err := handler(msg)
	require.NoError(t, err)
	require.Equal(t, context.Background(), msg.Context(), "it has its own context again")
	require.Same(t, msg, returned[0], "the slice of the handler stays as it is")
	require.Nil(t, produced[1])
	require.Same(t, other, produced[2])
	require.True(t, msg.Equals(produced[0]))
	require.Equal(t, "of the handler", produced[0].Context().Value(key{}))
	require.NoError(t, publisher.Publish("bills", produced[0]))
	processed, sent := spans.named("process ")[0], spans.named("send bills")[0]
	require.Equal(t, processed.SpanContext.SpanID(), sent.Parent.SpanID())

	_, err = handler(produced[0])
	require.NoError(t, err)
	again := spans.named("process ")
	require.Len(t, again, 2, "a message that comes back has a span of its own")
}

func TestMiddleware_a_span_around_it_stays_the_parent_or_becomes_a_link(t *testing.T) {
	t.Parallel()
	for name, parent := range map[string]bool{"parent": true, "link": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tracing, spans := record(t, oteltracing.Config{Parent: parent})
			msg := message.NewMessage("1", nil)
			msg.Metadata.Set("traceparent", parentOf)
			msg.Metadata.Set("baggage", "tenant=seven")
			handler := tracing.Middleware(func(msg *message.Message) ([]*message.Message, error) {
				require.Equal(t, "seven", baggage.FromContext(msg.Context()).Member("tenant").Value())
				return nil, nil
			})
			push := spans.during("push", func(ctx context.Context) {
				msg.SetContext(ctx)
				_, err := handler(msg)
				require.NoError(t, err)
				require.Equal(t, ctx, msg.Context(), "it has its own context again")
			})
			span := spans.named("process ")[0]
			created, err := trace.SpanIDFromHex("b7ad6b7169203331")
			require.NoError(t, err)
			if parent {
				require.Equal(t, created, span.Parent.SpanID())
				require.Equal(t, []trace.SpanID{created, push.SpanID()}, linked(span))
			} else {
				require.Equal(t, push.SpanID(), span.Parent.SpanID())
				require.Equal(t, []trace.SpanID{created}, linked(span))
			}
		})
	}
}

func TestMiddleware_a_context_that_cannot_be_read_fails_no_message(t *testing.T) {
	t.Parallel()
	tracing, spans := record(t, oteltracing.Config{Parent: true})
	s := serve(t, tracing, func(s *served) {
		_, err := s.router.AddQueueHandler("billing", "orders", s.broker, "", done, router.QueueConfig{Worker: queue.Config{Tuning: postbox.Tuning{PollMin: time.Millisecond, PollMax: tick}}})
		require.NoError(t, err)
	})
	messages := 0
	for name, text := range hostile() {
		msg := message.NewMessage(name, nil)
		msg.Metadata = message.Metadata{"traceparent": text, "tracestate": text, "baggage": text}
		require.NoError(t, s.publish(t.Context(), msg))
		messages++
	}
	for _, span := range append(spans.await("process billing", messages), spans.await("process orders", messages)...) {
		require.Empty(t, span.Links)
		require.False(t, span.Parent.IsValid())
		require.Equal(t, codes.Unset, span.Status.Code, span.Status.Description)
	}
}

func TestMiddleware_ends_its_span_when_the_handler_panics_or_ends_its_goroutine(t *testing.T) {
	t.Parallel()
	tracing, spans := record(t, oteltracing.Config{})
	panicking := tracing.Middleware(func(*message.Message) ([]*message.Message, error) { panic("no bank") })
	require.PanicsWithValue(t, "no bank", func() { _, _ = panicking(message.NewMessage("1", nil)) })
	exiting := tracing.Middleware(func(*message.Message) ([]*message.Message, error) {
		runtime.Goexit()
		return nil, nil
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = exiting(message.NewMessage("1", nil))
	}()
	<-ended
	processed := spans.named("process ")
	require.Len(t, processed, 2)
	for _, span := range processed {
		require.Equal(t, codes.Error, span.Status.Code)
		require.Equal(t, "it panicked, or ended its goroutine", span.Status.Description)
	}
	require.Contains(t, processed[0].Events[1].Attributes[1].Value.AsString(), "no bank", "the SDK notes the panic")
}
