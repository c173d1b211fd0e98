package oteltracing_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/tracing/oteltracing"
)

// manyErrors is an error that Go cannot compare, as that of some libraries for validation.
type manyErrors []error

func (e manyErrors) Error() string { return errors.Join(e...).Error() }

// typedError is an error whose type cannot be read.
type typedError struct{ name *string }

func (*typedError) Error() string { return "typed" }

func (e *typedError) ErrorType() string { return *e.name }

// panickingError is an error whose text cannot be read.
type panickingError struct{ text *string }

func (e *panickingError) Error() string { return *e.text }

func TestDecoratePublisher_records_errors_and_panics_and_passes_them_on(t *testing.T) {
	t.Parallel()
	tracing, spans := record(t, oteltracing.Config{})
	inner := &captured{err: postbox.Permanent(errors.New("\xff too large"))}
	publisher, err := tracing.DecoratePublisher(inner)
	require.NoError(t, err)
	require.ErrorIs(t, publisher.Publish("orders", message.NewMessage("1", nil)), inner.err)
	inner.err = &panickingError{}
	require.Error(t, publisher.Publish("orders", message.NewMessage("2", nil)))
	inner.err = manyErrors{io.EOF}
	require.Error(t, publisher.Publish("orders", message.NewMessage("3", nil)))
	inner.err = &typedError{}
	require.Error(t, publisher.Publish("orders", message.NewMessage("4", nil)))
	inner.err = nil
	panicking, err := tracing.DecoratePublisher(publisherFunc(func() error { panic("no broker") }))
	require.NoError(t, err)
	require.PanicsWithValue(t, "no broker", func() { _ = panicking.Publish("orders", message.NewMessage("5", nil)) })

	sent := spans.named("send orders")
	require.Len(t, sent, 5)
	for _, span := range sent {
		require.Equal(t, codes.Error, span.Status.Code)
	}
	require.Equal(t, "\uFFFD too large", sent[0].Status.Description)
	require.Equal(t, "*verdict.PermanentError", value(sent[0], "error.type"))
	require.Equal(t, "exception", sent[0].Events[0].Name)
	require.Contains(t, sent[1].Status.Description, "PANIC")
	require.Equal(t, "EOF", sent[2].Status.Description)
	require.Contains(t, value(sent[2], "error.type"), "manyErrors")
	require.Equal(t, "_OTHER", value(sent[3], "error.type"))
	require.Equal(t, "it panicked, or ended its goroutine", sent[4].Status.Description)

	require.NoError(t, publisher.Publish("orders"), "no message is no span")
	require.NoError(t, publisher.Publish("orders", nil), "the inner publisher decides about nil")
	require.Len(t, spans.named("send orders"), 5)
	for _, none := range []message.Publisher{nil, (*captured)(nil)} {
		_, err = tracing.DecoratePublisher(none)
		require.ErrorContains(t, err, "the publisher is nil")
	}
}

// Some exporters lose all spans of a batch if one of them has a value that is not UTF-8.
func TestDecoratePublisher_values_of_a_span_are_short_and_valid_UTF8(t *testing.T) {
	t.Parallel()
	tracing, spans := record(t, oteltracing.Config{})
	publisher, err := tracing.DecoratePublisher(&captured{err: errors.New(strings.Repeat("\xff", 1<<20))})
	require.NoError(t, err)
	long := strings.Repeat("é", 1<<10) + "\xff"
	msg := message.NewMessage("\xff"+long, nil)
	msg.Metadata.Set(postbox.MetadataCorrelationID, long)
	msg.Metadata.Set("traceparent", parentOf)
	require.Error(t, publisher.Publish(long, msg))
	span := spans.GetSpans()[0]
	texts := []string{span.Name, span.Status.Description}
	for _, attribute := range append(append(span.Attributes, span.Links[0].Attributes...), span.Events[0].Attributes...) {
		texts = append(texts, attribute.Value.String())
	}
	for _, text := range texts {
		require.True(t, utf8.ValidString(text))
		require.Less(t, len(text), 5000)
	}
	require.Greater(t, len(texts), 10)
}
