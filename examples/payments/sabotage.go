package main

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// How rarely something goes wrong.
const (
	failingHandlers = 10
	lostAnswers     = 4
)

func strikes(oneIn int) bool { return rand.IntN(oneIn) == 0 } //nolint:gosec // any dice will do

// failSometimes is a middleware by which some handlers fail when they have done everything.
func failSometimes(handler message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := handler(msg)
		if err == nil && strikes(failingHandlers) {
			return nil, errors.New("sabotage: the handler fails after it has written")
		}
		return produced, err
	}
}

// post is the way to the broker, on which messages are doubled and answers are lost. It keeps the
// books of it.
type post struct {
	message.Publisher

	mu        sync.Mutex
	doubled   int            // receipts that were published, and that the forwarder will publish again
	sent      map[string]int // by message: each copy, to each group of the broker
	delivered map[string]int
}

func newPost(broker message.Publisher) *post {
	return &post{Publisher: broker, sent: map[string]int{}, delivered: map[string]int{}}
}

// Publish publishes commands two or three times. It publishes receipts once, but sometimes says
// that it did not.
func (p *post) Publish(topic string, messages ...*message.Message) error {
	copies := 1
	if topic == commandsTopic {
		copies = 2 + rand.IntN(2) //nolint:gosec // any dice will do
	}
	for range copies {
		if err := p.Publisher.Publish(topic, messages...); err != nil {
			return err
		}
	}
	lost := topic == receiptsTopic && slices.ContainsFunc(messages, func(*message.Message) bool { return strikes(lostAnswers) })
	p.noteSent(topic, messages, copies, lost)
	if lost {
		return errors.New("sabotage: the receipts are published, and the answer is lost")
	}
	return nil
}

func (p *post) noteSent(topic string, messages []*message.Message, copies int, lost bool) {
	groups := 0
	for _, role := range roles {
		if role.topic == topic {
			groups++
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if lost {
		p.doubled += len(messages)
	}
	for _, msg := range messages {
		p.sent[msg.UUID] += copies * groups
	}
}

// noteDelivery is a middleware that notes what has been delivered and handled, or is a duplicate.
func (p *post) noteDelivery(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := next(msg)
		if err == nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.delivered[msg.UUID]++
		}
		return produced, err
	}
}

// underWay returns how many messages were sent so far, and whether some of them have not arrived.
func (p *post) underWay() (sent int, yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, n := range p.sent {
		sent += n
		yes = yes || p.delivered[id] < n
	}
	return sent, yes
}

// counts returns how many deliveries were of messages that had been delivered before, and how many
// receipts were published again.
func (p *post) counts() (duplicates, doubled int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.delivered {
		duplicates += n - 1
	}
	return duplicates, p.doubled
}
