package pipeline_test

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// trouble is what stands between forwarders and the broker: it delivers twice, at once and much
// later, and it reports errors for what has arrived in part or in full. It is shared by the
// forwarders of a test.
type trouble struct {
	mu      sync.Mutex
	calls   int
	old     []*message.Message
	topics  []string
	doubled int
	lied    int
}

// The errors of trouble begin alike, so that a test can tell them from those of handlers.
const troublePrefix = "trouble with the broker: "

var (
	errPart   = errors.New(troublePrefix + "the connection broke in the middle of a batch")
	errAnswer = fmt.Errorf(troublePrefix+"the answer is lost: %w", io.ErrUnexpectedEOF) // an outage
)

// decorate is a [message.PublisherDecorator].
func (tr *trouble) decorate(publisher message.Publisher) (message.Publisher, error) {
	return troubledPublisher{publisher, tr}, nil
}

type troubledPublisher struct {
	message.Publisher
	trouble *trouble
}

func (p troubledPublisher) Publish(topic string, messages ...*message.Message) error {
	tr := p.trouble
	n := tr.enter(topic, messages)
	if n%11 == 0 { // F16: only a part arrives
		tr.count(&tr.lied, 1)
		if err := p.Publisher.Publish(topic, messages[:len(messages)/2]...); err != nil {
			return err
		}
		return errPart
	}
	if err := p.Publisher.Publish(topic, messages...); err != nil {
		return err
	}
	switch {
	case n%13 == 0: // F5: everything arrives, and nobody is told
		tr.count(&tr.lied, 1)
		return errAnswer
	case n%4 == 0: // F6: a copy right behind
		tr.count(&tr.doubled, len(messages))
		return p.Publisher.Publish(topic, copies(messages)...)
	case n%5 == 0: // a copy of something that others have long overtaken
		tr.count(&tr.doubled, 1)
		oldTopic, old := tr.earlier(n)
		return p.Publisher.Publish(oldTopic, old)
	}
	return nil
}

func (tr *trouble) enter(topic string, messages []*message.Message) int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.calls++
	tr.old = append(tr.old, messages[0].Copy())
	tr.topics = append(tr.topics, topic)
	return tr.calls
}

func (tr *trouble) count(counter *int, n int) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	*counter += n
}

func (tr *trouble) earlier(n int) (string, *message.Message) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.topics[n/2], tr.old[n/2].Copy()
}

func copies(messages []*message.Message) []*message.Message {
	all := make([]*message.Message, len(messages))
	for i, msg := range messages {
		all[i] = msg.Copy()
	}
	return all
}
