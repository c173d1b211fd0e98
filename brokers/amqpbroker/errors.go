package amqpbroker

import "errors"

// What [Publisher.Publish] returns.
var (
	// errNotConnected means that RabbitMQ cannot be reached or the connection was lost meanwhile.
	// Messages sent before the loss may have arrived.
	errNotConnected = errors.New("not connected to RabbitMQ")
	// errBlocked means that RabbitMQ has told the connection that it takes no messages, because it
	// lacks memory or disk space. Nothing was sent. Calls in flight at that moment wait for
	// confirmTimeout. So does the first call on each connection made meanwhile, since RabbitMQ
	// reports the block only then.
	errBlocked = errors.New("RabbitMQ has blocked the connection and accepts no messages at the moment")
	// errNotConfirmed has three cases: RabbitMQ refused to confirm a message, as a full queue with
	// overflow "reject-publish" does; RabbitMQ did not answer within confirmTimeout; or the
	// message's context ended first. In the last two cases the message may have arrived.
	errNotConfirmed = errors.New("not confirmed by RabbitMQ")
	// errUnroutable means that a message reached no queue: none is bound, the exchange or queue
	// does not exist, or the exchange cannot be declared. RabbitMQ has dropped the message.
	errUnroutable = errors.New("no queue for the message")
	// errMessageRefused is for a message that RabbitMQ does not take, or that its protocol cannot
	// carry: it is too large, or has too much metadata, a metadata key over 255 bytes, or an
	// invalid property.
	errMessageRefused = errors.New("message refused")
)
