package amqpbroker

import "errors"

var (
	// ErrNotConnected is returned by [Publisher.Publish] when RabbitMQ cannot be reached or the
	// connection was lost meanwhile. Messages sent before the loss may have arrived.
	ErrNotConnected = errors.New("not connected to RabbitMQ")
	// ErrBlocked is returned by [Publisher.Publish] while RabbitMQ has told the connection that it
	// takes no messages, because it lacks memory or disk space. Nothing was sent. Calls in flight
	// at that moment wait for [ConfirmTimeout]. So does the first call on each connection made
	// meanwhile, since RabbitMQ reports the block only then.
	ErrBlocked = errors.New("RabbitMQ has blocked the connection and accepts no messages at the moment")
	// ErrNotConfirmed is returned by [Publisher.Publish] in three cases: RabbitMQ refused to
	// confirm a message, as a full queue with overflow "reject-publish" does; RabbitMQ did not
	// answer within [ConfirmTimeout]; or the message's context ended first. In the last two cases
	// the message may have arrived.
	ErrNotConfirmed = errors.New("not confirmed by RabbitMQ")
	// ErrUnroutable is returned by [Publisher.Publish] when a message reached no queue: none is
	// bound, the exchange or queue does not exist, or the exchange cannot be declared. RabbitMQ has
	// dropped the message.
	ErrUnroutable = errors.New("no queue for the message")
	// ErrMessageRefused is returned by [Publisher.Publish] for a message that RabbitMQ does not
	// take, or that its protocol cannot carry: it is too large, or has too much metadata, a
	// metadata key over 255 bytes, or an invalid property.
	ErrMessageRefused = errors.New("message refused")
)
