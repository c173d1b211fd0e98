package relay

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
)

// What all contenders send.
const (
	topic       = "orders"
	payloadSize = 256
	keys        = 1000
	page        = 1000 // messages in one call of a publisher, when tables are filled
)

// messages returns so many, beginning with a number, each with one of the keys.
func messages(first, n int) []*message.Message {
	payload := make([]byte, payloadSize)
	for i := range payload {
		payload[i] = byte('a' + i%26)
	}
	batch := make([]*message.Message, n)
	for i := range batch {
		batch[i] = message.NewMessage(postbox.NewMessageID(), payload)
		batch[i].Metadata.Set(postbox.OrderingKey, fmt.Sprint("customer-", (first+i)%keys))
	}
	return batch
}

// fill publishes n messages to an outbox, page by page.
func fill(n int, publish func(batch ...*message.Message) error) error {
	for first := 0; first < n; first += page {
		if err := publish(messages(first, min(page, n-first))...); err != nil {
			return fmt.Errorf("fill the outbox: %w", err)
		}
	}
	return nil
}
