package postbox

// Metadata keys that Postbox reads or writes. Metadata is the one thing that survives every
// Watermill Pub/Sub, so whatever must travel with a message travels there.
const (
	// OrderingKey holds the key of the message: messages with the same key are published, and
	// processed, one at a time and oldest first. It has the name that Watermill's own Kafka tests
	// use, so a partitioner written for them works unchanged.
	OrderingKey = "partition_key"
)
