// Package meter reports what happens in an outbox or a queue, and in inboxes, to a recorder of
// package metrics. All its methods do nothing if there is no recorder.
package meter

import (
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/instruments"
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
	recorder   *guarded
	kind, name string
	batch      *series
	topics     sync.Map // name of a topic to its *topic
}

// Of returns the meter of a spool, nil without a recorder.
func Of(recorder metrics.Recorder, name string, logger watermill.LoggerAdapter) *Spool {
	guarded := guard(recorder, logger)
	if guarded == nil {
		return nil
	}
	kind, own := spool.Named(name)
	return &Spool{recorder: guarded, kind: kind, name: own, batch: guarded.series(instruments.Batch, kind, own)}
}

// processStart is where the clock of [Spool.Now] starts.
var processStart = time.Now()

// Now returns a time for the measurement of a duration, 0 without a recorder. It costs half of what
// time.Now does, since it does not read the time of day.
func (s *Spool) Now() time.Duration {
	if s == nil {
		return 0
	}
	return time.Since(processStart)
}

// Begin makes the series of a queue begin at 0, so that their rates include the first message. It
// is called when a process begins to work on the queue. The topics of an outbox are not known then:
// their series begin with the first outcome.
func (s *Spool) Begin() {
	if s != nil && s.kind == spool.KindQueue {
		s.topic(s.name).begin()
	}
}

// Stored reports messages that were written, and may still be rolled back. The topic of a queue is
// its name.
func (s *Spool) Stored(topic string, messages int) {
	if s != nil {
		s.topic(topic).stored.record(float64(messages))
	}
}

// Called reports a call of the broker's publisher, or of a queue's handler, with a number of
// messages. succeeded is true if it was successful for all of them.
func (s *Spool) Called(topic string, messages int, took time.Duration, succeeded bool) {
	if s == nil {
		return
	}
	of := s.topic(topic)
	calls := of.failed
	if succeeded {
		calls = of.succeeded
	}
	calls.record(took.Seconds())
	s.batch.record(float64(messages))
}

// Settled reports a transaction that recorded outcomes.
func (s *Spool) Settled(took time.Duration) {
	if s != nil {
		s.recorder.Record(instruments.Settled, took.Seconds(), s.kind, s.name)
	}
}

// Read reports a read of the spool or of its settings.
func (s *Spool) Read(err error) {
	if s == nil {
		return
	}
	if err != nil {
		s.recorder.Record(instruments.Reads, 1, s.kind, s.name, failed)
		return
	}
	s.recorder.Record(instruments.Reads, 1, s.kind, s.name, ok)
	s.recorder.Record(instruments.LastRead, float64(time.Now().UnixMilli())/1000, s.kind, s.name)
}

// Holds reports how many lanes this process holds, and how many it has lost since the last call.
func (s *Spool) Holds(lanes, lost int) {
	if s == nil {
		return
	}
	s.recorder.Record(instruments.LanesHeld, float64(lanes), s.kind, s.name)
	s.recorder.Record(instruments.LanesLost, float64(lost), s.kind, s.name)
}

// HeldUp reports how many messages of this process wait for limits.
func (s *Spool) HeldUp(total, topics int) {
	if s == nil {
		return
	}
	s.recorder.Record(instruments.HeldUp, float64(total), s.kind, s.name, "total")
	s.recorder.Record(instruments.HeldUp, float64(topics), s.kind, s.name, "topic")
}

// ReadsLog reports whether this process reads the log of the database.
func (s *Spool) ReadsLog(reads bool) {
	if s == nil {
		return
	}
	value := 0.0
	if reads {
		value = 1
	}
	s.recorder.Record(instruments.LogReading, value, s.kind, s.name)
}

// LogTaken reports messages that were taken from the log.
func (s *Spool) LogTaken(messages int) {
	if s != nil && messages > 0 {
		s.recorder.Record(instruments.LogTaken, float64(messages), s.kind, s.name)
	}
}

// LogRetained reports how many bytes of log the server keeps for this process.
func (s *Spool) LogRetained(bytes int64) {
	if s != nil {
		s.recorder.Record(instruments.LogRetained, float64(bytes), s.kind, s.name)
	}
}

// Circuit reports the beginning or the end of an outage.
func (s *Spool) Circuit(topic string, open bool) {
	if s == nil {
		return
	}
	of := s.topic(topic)
	of.begin()
	value := 0.0
	if open {
		value = 1
	}
	of.circuit.record(value)
}
