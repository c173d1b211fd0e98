package main

import (
	"errors"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
)

var errDown = errors.New("the broker does not answer")

// breakable is a publisher whose broker can be down.
type breakable struct {
	message.Publisher
	down atomic.Bool
}

// Publish publishes, unless the broker is down.
func (b *breakable) Publish(topic string, messages ...*message.Message) error {
	if b.down.Load() {
		return errDown
	}
	return b.Publisher.Publish(topic, messages...)
}
