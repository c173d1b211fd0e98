package meter

import (
	"sync"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/instruments"
	"github.com/postbox-go/watermill-postbox/metrics"
)

// Delivery is the value of the label "result" of a message that reached an inbox.
type Delivery string

// What becomes of a message that reaches an inbox.
const (
	Handled   Delivery = "handled"
	Stored    Delivery = "stored"
	Duplicate Delivery = "duplicate"
	Failed    Delivery = "failed"
)

// Inboxes reports on the inboxes of a store. It is safe for concurrent use. A nil Inboxes reports
// nothing.
type Inboxes struct {
	recorder *guarded

	mu    sync.RWMutex
	known map[delivery]*series
}

// delivery has the labels of a series, of which there are as many as the recorder has.
type delivery struct {
	consumer, topic string
	result          Delivery
}

// OfInboxes returns the meter of a store, nil without a recorder.
func OfInboxes(recorder metrics.Recorder, logger watermill.LoggerAdapter) *Inboxes {
	guarded := guard(recorder, logger)
	if guarded == nil {
		return nil
	}
	return &Inboxes{recorder: guarded, known: map[delivery]*series{}}
}

// Delivered reports a message that reached an inbox. fresh is false for a duplicate; done is what a
// fresh one is.
func (i *Inboxes) Delivered(consumer, topic string, done Delivery, fresh bool, err error) {
	if i == nil {
		return
	}
	result := done
	switch {
	case err != nil:
		result = Failed
	case !fresh:
		result = Duplicate
	}
	i.series(delivery{consumer, topic, result}).record(1)
}

func (i *Inboxes) series(of delivery) *series {
	i.mu.RLock()
	s := i.known[of]
	i.mu.RUnlock()
	if s != nil {
		return s
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if s = i.known[of]; s == nil {
		s = i.recorder.series(instruments.Deliveries, of.consumer, of.topic, string(of.result))
		i.known[of] = s
	}
	return s
}
