package amqpbroker

import "time"

// What the publisher returns, for tests.
var (
	ErrNotConnected   = errNotConnected
	ErrBlocked        = errBlocked
	ErrNotConfirmed   = errNotConfirmed
	ErrUnroutable     = errUnroutable
	ErrMessageRefused = errMessageRefused
)

// ConfirmTimeout is how long a publisher waits, for tests.
const ConfirmTimeout = confirmTimeout

// SetConfirmTimeout shortens [confirmTimeout] for a test. Call it before the first Publish.
func (p *Publisher) SetConfirmTimeout(timeout time.Duration) { p.confirmTimeout = timeout }

// IdleChannels returns how many channels are kept for later calls. The publisher must be connected.
func (p *Publisher) IdleChannels() int { return len(p.open().idle) }

// Windows returns how many messages of a batch with these ordering keys wait for their confirms
// together.
func Windows(keys ...string) []int {
	batch := make([]outgoing, len(keys))
	for i, key := range keys {
		batch[i].key = key
	}
	var sizes []int
	for len(batch) > 0 {
		var window []outgoing
		window, batch = nextWindow(batch)
		sizes = append(sizes, len(window))
	}
	return sizes
}
