package postbox

// Metadata keys that Postbox reads or writes. Only metadata survives every Watermill Pub/Sub, so
// values that must travel with a message are kept there.
const (
	// MetadataOrderingKey holds the key of the message: messages with the same key and topic are
	// published, and processed by queues, oldest first. It has the name that Watermill's own Kafka
	// tests use, so a partitioner written for them works unchanged.
	MetadataOrderingKey = "partition_key"

	// MetadataSourceTopic holds the topic that a message came from, if it was stored in a queue of
	// an inbox: there its handler sees the queue as the topic. middleware.Defer sets it, and drops
	// a value that comes with a message.
	MetadataSourceTopic = "postbox_topic"

	// MetadataCorrelationID holds a value that all messages of a chain share: the UUID of the first
	// one, or the id of a request. It has the name that Watermill's CorrelationID middleware uses.
	MetadataCorrelationID = "correlation_id"
	// MetadataCausationID holds the UUID of the message whose handler produced this one.
	MetadataCausationID = "causation_id"
	// MetadataCausationPath holds the hops that led to the message, oldest first, as a JSON array
	// of "module/event type":
	//
	//	["orders/OrderPlaced","payments/PaymentTaken"]
	//
	// In a name, each character other than an ASCII letter, a digit or one of -_.~$&+=:@ is
	// percent-encoded as in the path of a URL, so that every name survives every broker.
	MetadataCausationPath = "causation_path"
)
