package oteltracing

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
)

// Keys of attributes that the semantic conventions do not have.
const (
	// waitKey is the time in seconds from the creation of a message until its span begins: see
	// [sentAtKey]. It includes failed attempts, and the difference between the clocks of the two
	// processes. A span has it if it has one message, if the metadata or the UUID of that message
	// says when it was created, and if the time is not negative.
	waitKey = attribute.Key("postbox.message.wait")
	// handlerKey is the name of the handler in its router.
	handlerKey = attribute.Key("postbox.handler.name")
	// sourceTopicKey is the topic from which a message came into its queue: see
	// [postbox.MetadataSourceTopic].
	sourceTopicKey = attribute.Key("postbox.source.topic")
)

// Bounds for what comes from messages and errors, in bytes.
const (
	maxValue = 256
	maxError = 4096
)

// text returns a value that every exporter can send: valid UTF-8, and not longer than most bytes.
// One bad value can make an exporter lose a whole batch of spans.
func text(value string, most int) string {
	if len(value) > most {
		value = value[:most]
	}
	return strings.ToValidUTF8(value, "\uFFFD")
}

// describe adds the attributes of a span that has one message.
func describe(span trace.Span, msg *message.Message) {
	if !span.IsRecording() {
		return
	}
	var attributes []attribute.KeyValue
	if msg.UUID != "" {
		attributes = append(attributes, semconv.MessagingMessageID(text(msg.UUID, maxValue)))
	}
	if id := msg.Metadata.Get(postbox.MetadataCorrelationID); id != "" {
		attributes = append(attributes, semconv.MessagingMessageConversationID(text(id, maxValue)))
	}
	if at, known := timeOf(msg); known {
		if wait := time.Since(at); wait >= 0 {
			attributes = append(attributes, waitKey.Float64(wait.Seconds()))
		}
	}
	span.SetAttributes(attributes...)
}

// timeOf returns the time at which a message was created, from its metadata or from its UUID, which
// has that time if it is a UUIDv7.
func timeOf(msg *message.Message) (at time.Time, known bool) {
	if sent := msg.Metadata.Get(sentAtKey); sent != "" {
		at, err := time.Parse(time.RFC3339Nano, sent)
		return at, err == nil
	}
	id, err := uuid.Parse(msg.UUID)
	if err != nil || id.Version() != 7 {
		return time.Time{}, false
	}
	seconds, nanoseconds := id.Time().UnixTime()
	return time.Unix(seconds, nanoseconds), true
}

// linkTo returns a link to the span in which a message was created.
func linkTo(created trace.SpanContext, msg *message.Message) trace.Link {
	return trace.Link{SpanContext: created, Attributes: []attribute.KeyValue{semconv.MessagingMessageID(text(msg.UUID, maxValue))}}
}

// common returns the context that all n messages of a span have, if there is one.
func common(links []trace.Link, n int) (created trace.SpanContext, one bool) {
	if len(links) == 0 || len(links) != n {
		return trace.SpanContext{}, false
	}
	for _, link := range links[1:] {
		if !link.SpanContext.Equal(links[0].SpanContext) {
			return trace.SpanContext{}, false
		}
	}
	return links[0].SpanContext, true
}

var errNotReturned = errors.New("it panicked, or ended its goroutine")

// fail records an error. The span stays as it is if there is none.
func fail(span trace.Span, err error) {
	if err == nil || !span.IsRecording() {
		return
	}
	description, kind := text(fmt.Sprint(err), maxError), text(typeOf(err), maxValue)
	span.SetStatus(codes.Error, description)
	span.SetAttributes(semconv.ErrorTypeKey.String(kind))
	span.AddEvent(semconv.ExceptionEventName, trace.WithAttributes(semconv.ExceptionType(kind), semconv.ExceptionMessage(description)))
}

// typeOf returns the type of an error, or what its method ErrorType returns. That method belongs to
// the user and may panic.
func typeOf(err error) (kind string) {
	defer func() {
		if recover() != nil {
			kind = semconv.ErrorTypeOther.Value.AsString()
		}
	}()
	return semconv.ErrorType(err).Value.AsString()
}
