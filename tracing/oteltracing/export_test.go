package oteltracing

// The keys of attributes and of metadata, for tests.
const (
	Wait        = waitKey
	Handler     = handlerKey
	SourceTopic = sourceTopicKey
	SentAt      = sentAtKey
)
