package spool

import (
	"github.com/ThreeDotsLabs/watermill/components/delay"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/unique"
)

// KafkaKey is the key of the metadata under which Defer stores the key of a record of Kafka.
const KafkaKey = "kafka_key"

// Metadata comes with a message from outside, so whoever may publish to a topic chooses it. What
// tells Postbox what to do must come from this service's own code. So a message loses it where it
// enters: an inbox applies both functions to what its handler gets, Defer the first one to what it
// stores, and a queue the second one to what it hands out, since the delay is for the queue.

// ForgetOrigin deletes from which topic, and under which key, a message came: only Defer knows.
func ForgetOrigin(metadata map[string]string) {
	delete(metadata, postbox.MetadataSourceTopic)
	delete(metadata, KafkaKey)
}

// Disarm deletes what an outbox would obey if a handler passed the message on to it.
func Disarm(metadata map[string]string) {
	delete(metadata, unique.Key)
	delete(metadata, unique.Mode)
	delete(metadata, delay.DelayedForKey)
	delete(metadata, delay.DelayedUntilKey)
}
