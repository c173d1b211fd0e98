package main

import (
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// again is after how many other sales a sale is delivered once more: that is on the same day, or
// days later, when its report has long been made.
const again = 40

// post is the way to the broker, which delivers some sales twice and some three times, and counts.
type post struct {
	message.Publisher

	mu        sync.Mutex
	recent    []*message.Message
	sent      map[string]int // by sale
	delivered map[string]int
}

func newPost(broker message.Publisher) *post {
	return &post{Publisher: broker, sent: map[string]int{}, delivered: map[string]int{}}
}

// Publish publishes the messages, every third twice in a row, and each of them once more when many
// others have followed.
func (p *post) Publish(topic string, messages ...*message.Message) error {
	const third = 3
	for _, msg := range messages {
		p.mu.Lock()
		p.recent = append(p.recent, msg.Copy())
		copies := []*message.Message{msg}
		if len(p.recent)%third == 0 {
			copies = append(copies, msg)
		}
		if earlier := len(p.recent) - again; earlier >= 0 {
			copies = append(copies, p.recent[earlier])
		}
		p.mu.Unlock()
		if err := p.Publisher.Publish(topic, copies...); err != nil {
			return err
		}
		p.note(p.sent, copies...)
	}
	return nil
}

// noteDelivery is a middleware that notes what has been delivered, and stored.
func (p *post) noteDelivery(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := next(msg)
		if err == nil {
			p.note(p.delivered, msg)
		}
		return produced, err
	}
}

func (p *post) note(book map[string]int, messages ...*message.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, msg := range messages {
		book[msg.UUID]++
	}
}

// arrived says whether all that was sent has been delivered, as often as it was sent.
func (p *post) arrived() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, n := range p.sent {
		if p.delivered[id] < n {
			return false
		}
	}
	return true
}

// duplicates counts deliveries of what had been delivered before.
func (p *post) duplicates() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	repeated := 0
	for _, n := range p.delivered {
		repeated += n - 1
	}
	return repeated
}
