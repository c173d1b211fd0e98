// Package meter reports what happens in an outbox or a queue, and in inboxes, to a recorder of package metrics. All its
// methods do nothing if there is no recorder.
package meter

import (
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/metrics"
)

// Outcome is the value of the label "outcome".
type Outcome string

// The outcomes of a message.
const (
	Done   Outcome = "done"   // its row is gone
	Retry  Outcome = "retry"  // it failed, and waits for another attempt
	Wait   Outcome = "wait"   // it waits, and no attempt was counted
	Parked Outcome = "parked" // it waits for an operator
	Dead   Outcome = "dead"   // it is a dead letter
)

var outcomes = []Outcome{Done, Retry, Wait, Parked, Dead}

// Values of other labels.
const (
	failed = "failed" // of "result"
	ok     = "ok"
	// The following are values that OpenTelemetry's conventions want of calls.
	system       = "postbox"
	send         = "send"
	process      = "process"
	unclassified = "_OTHER"
)

// Spool reports on one outbox or queue. It is safe for concurrent use. A nil Spool reports nothing.
type Spool struct {
	recorder   metrics.Recorder
	kind, name string
	begun      sync.Map // topics whose series have begun, each with its [sync.Once]
}

// Of returns the meter of a spool, nil without a recorder.
func Of(recorder metrics.Recorder, name string, logger watermill.LoggerAdapter) *Spool {
	if recorder = Guarded(recorder, logger); recorder == nil {
		return nil
	}
	kind, own := spool.Named(name)
	return &Spool{recorder: recorder, kind: kind, name: own}
}

// Begin makes the series of a queue begin at 0, so that their rates include the first message. It is called when a
// process begins to work on the queue. The topics of an outbox are not known then: their series begin with the first
// outcome.
func (s *Spool) Begin() {
	if s != nil && s.kind == spool.KindQueue {
		s.begin(s.name)
	}
}

func (s *Spool) begin(topic string) {
	once, has := s.begun.Load(topic)
	if !has {
		once, _ = s.begun.LoadOrStore(topic, &sync.Once{})
	}
	once.(*sync.Once).Do(func() { //nolint:forcetypeassert // the map has nothing else
		for _, outcome := range outcomes {
			s.recorder.Record(metrics.Ended, 0, s.kind, s.name, topic, string(outcome))
		}
		s.recorder.Record(metrics.CircuitOpen, 0, s.kind, s.name, topic)
	})
}

// Stored reports messages that were written, and may still be rolled back. The topic of a queue is its name.
func (s *Spool) Stored(topic string, messages int) {
	if s != nil {
		s.recorder.Record(metrics.Stored, float64(messages), s.kind, s.name, topic)
	}
}

// Ended reports the outcome of a message after its commit. The time is by the clock of the database.
func (s *Spool) Ended(m *spool.Message, outcome Outcome, now time.Time) {
	if s == nil {
		return
	}
	s.begin(m.Topic)
	s.recorder.Record(metrics.Ended, 1, s.kind, s.name, m.Topic, string(outcome))
	if outcome == Done || outcome == Dead {
		s.recorder.Record(metrics.Attempts, float64(m.Attempts+1), s.kind, s.name, m.Topic)
	}
	if outcome == Done && m.NeverWaited() {
		s.recorder.Record(metrics.Latency, max(now.Sub(m.CreatedAt), 0).Seconds(), s.kind, s.name, m.Topic)
	}
}

// Called reports a call of the broker's publisher, or of a queue's handler, with a number of messages. succeeded is true
// if it was successful for all of them.
func (s *Spool) Called(topic string, messages int, took time.Duration, succeeded bool) {
	if s == nil {
		return
	}
	instrument, operation, errorType := metrics.Handled, process, ""
	if s.kind == spool.KindOutbox {
		instrument, operation = metrics.Published, send
	}
	if !succeeded {
		errorType = unclassified
	}
	s.recorder.Record(instrument, took.Seconds(), system, operation, topic, errorType, s.kind, s.name)
	s.recorder.Record(metrics.Batch, float64(messages), s.kind, s.name)
}

// Settled reports a transaction that recorded outcomes.
func (s *Spool) Settled(took time.Duration) {
	if s != nil {
		s.recorder.Record(metrics.Settled, took.Seconds(), s.kind, s.name)
	}
}

// Read reports a read of the spool or of its settings.
func (s *Spool) Read(err error) {
	if s == nil {
		return
	}
	if err != nil {
		s.recorder.Record(metrics.Reads, 1, s.kind, s.name, failed)
		return
	}
	s.recorder.Record(metrics.Reads, 1, s.kind, s.name, ok)
	s.recorder.Record(metrics.LastRead, float64(time.Now().UnixMilli())/1000, s.kind, s.name)
}

// Holds reports how many lanes this process holds, and how many it has lost since the last call.
func (s *Spool) Holds(lanes, lost int) {
	if s == nil {
		return
	}
	s.recorder.Record(metrics.LanesHeld, float64(lanes), s.kind, s.name)
	s.recorder.Record(metrics.LanesLost, float64(lost), s.kind, s.name)
}

// Circuit reports the beginning or the end of an outage.
func (s *Spool) Circuit(topic string, open bool) {
	if s == nil {
		return
	}
	s.begin(topic)
	value := 0.0
	if open {
		value = 1
	}
	s.recorder.Record(metrics.CircuitOpen, value, s.kind, s.name, topic)
}
