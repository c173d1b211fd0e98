package oteltracing

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/ThreeDotsLabs/watermill/message"
)

// sentAtKey is the metadata key that holds the time at which a message was published, in the format
// of [time.RFC3339Nano] and by the clock of its producer. A publisher of
// [Tracing.DecoratePublisher] writes it together with the context, but not for a message whose UUID
// has the time in it, as those of postbox.NewMessageID have.
const sentAtKey = "postbox_sent_at"

// baggageKey is the metadata key of the W3C propagator for baggage, which does not say where a
// message was created.
const baggageKey = "baggage"

// stateKey is the metadata key of the W3C propagator for what systems of tracing add to a context.
const stateKey = "tracestate"

// maxWords bounds what a propagator adds to a message, in bytes. It and the longest time of
// [sentAtKey] are 1 KiB.
const maxWords = 1<<10 - len(sentAtKey) - len("2006-01-02T15:04:05.999999999Z")

// Detach takes out of the metadata what says where and when a message was created: the keys of the
// propagator, which for W3C are traceparent, tracestate and baggage, and postbox_sent_at. Use it
// for a copy of a message that is a message of its own, before it is published. It then gets the
// trace context of the span that publishes it. The map may not be shared with another message:
// those of [message.Message.Copy] are not.
func (t *Tracing) Detach(msg *message.Message) {
	for _, key := range t.config.Propagator.Fields() {
		delete(msg.Metadata, key)
	}
	delete(msg.Metadata, sentAtKey)
}

// created returns the context of the span in which the message was created. It is not valid if the
// metadata has none, or one that cannot be read.
func (t *Tracing) created(msg *message.Message) trace.SpanContext {
	if len(msg.Metadata) == 0 {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(t.config.Propagator.Extract(context.Background(), propagation.MapCarrier(msg.Metadata)))
}

// inject returns the metadata with the context of ctx in it, and whether anything was added. It
// keeps all that the metadata has: if one of the propagator's keys has a value, readable or not,
// nothing is added, since a mixture of two contexts would be wrong. Baggage is the exception: it is
// no part of the context of a span.
func (t *Tracing) inject(ctx context.Context, msg *message.Message) (metadata message.Metadata, added bool) {
	var words wordCarrier
	t.config.Propagator.Inject(ctx, &words)
	if len(words) == 0 {
		return msg.Metadata, false
	}
	for _, key := range t.config.Propagator.Fields() {
		if key != baggageKey && msg.Metadata[key] != "" {
			return msg.Metadata, false
		}
	}
	words = slices.DeleteFunc(words, func(w word) bool { return msg.Metadata[w.key] != "" })
	words = t.bounded(words)
	if len(words) == 0 {
		return msg.Metadata, false
	}
	metadata = make(message.Metadata, len(msg.Metadata)+len(words)+1)
	maps.Copy(metadata, msg.Metadata)
	for _, word := range words {
		metadata[word.key] = word.value
	}
	if _, known := timeOf(msg); !known && metadata[sentAtKey] == "" {
		metadata[sentAtKey] = time.Now().UTC().Format(time.RFC3339Nano)
	}
	return metadata, true
}

// bounded returns the words without what is too long. Baggage and the state of a trace come from
// the request, and so perhaps from a stranger, whose request should not fail because the message
// became too large. Baggage goes first, with all keys that the propagator does not name. What says
// where the message was created is short and stays.
func (t *Tracing) bounded(words wordCarrier) wordCarrier {
	if words.size() > maxWords {
		fields := t.config.Propagator.Fields()
		words = slices.DeleteFunc(words, func(w word) bool { return w.key == baggageKey || !slices.Contains(fields, w.key) })
	}
	if words.size() > maxWords {
		words = slices.DeleteFunc(words, func(w word) bool { return w.key == stateKey })
	}
	return words
}

// wordCarrier collects what a propagator writes.
type wordCarrier []word

type word struct{ key, value string }

// size returns the bytes that the words have in metadata.
func (c *wordCarrier) size() (bytes int) {
	for _, word := range *c {
		bytes += len(word.key) + len(word.value)
	}
	return bytes
}

// Get returns the value of a key.
func (c *wordCarrier) Get(key string) string {
	for _, word := range *c {
		if word.key == key {
			return word.value
		}
	}
	return ""
}

// Set collects a value.
func (c *wordCarrier) Set(key, value string) { *c = append(*c, word{key, value}) }

// Keys lists the keys.
func (c *wordCarrier) Keys() []string {
	keys := make([]string, len(*c))
	for i, word := range *c {
		keys[i] = word.key
	}
	return keys
}
