package postbox

// Metadata keys that Postbox reads or writes. Metadata is the one thing that survives every
// Watermill Pub/Sub, so whatever must travel with a message travels there.
const (
	// OrderingKey holds the key of the message: messages with the same key are published, and
	// processed, one at a time and oldest first. It has the name that Watermill's own Kafka tests
	// use, so a partitioner written for them works unchanged.
	OrderingKey = "partition_key"

	// SourceTopic holds the topic that a message came from, where it was stored in a queue of an inbox: the queue is
	// the topic that its handler sees. A value that the message has already stays: delete it where a handler publishes a copy of a message
	// to another topic.
	SourceTopic = "postbox_topic"
	// KafkaKey holds the key of the record that a message was in Kafka; see kafkabroker.Capture.
	KafkaKey = "kafka_key"

	// CorrelationID holds what all messages of a chain have in common: the UUID of the first one, or an id of a
	// request. It has the name that Watermill's CorrelationID middleware uses.
	CorrelationID = "correlation_id"
	// CausationID holds the UUID of the message in whose handling this one was produced.
	CausationID = "causation_id"
	// CausationPath holds the hops that led to the message, oldest first, as a JSON array of "module/event type":
	//
	//	["orders/OrderPlaced","payments/PaymentTaken"]
	//
	// What is neither an ASCII letter, a digit nor one of -_.~$&+=:@ in a name is percent-encoded as in the path of
	// a URL, so that every name survives every broker.
	CausationPath = "causation_path"
	// SchemaVersion holds the version of the payload's schema. The producer sets it, consumers read it, and Postbox
	// carries it along like all other metadata.
	SchemaVersion = "schema_version"
)
