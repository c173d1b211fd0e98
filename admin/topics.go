package admin

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// PauseTopic stops the messages of one topic of an outbox, in all processes and also in those that start later, until
// [Admin.ResumeTopic]. Messages of the topic can still be written. Processes notice the pause within a second: running calls to
// the broker end, and no further message of the topic is begun. No attempt is counted, and nothing is lost, whatever crashes.
//
// Other topics go on, also with messages of the same ordering keys, as they do during an outage of the topic. The messages of the topic
// itself keep the order of their keys. But a message of the topic that has failed, and waits for its next attempt, still holds
// back the later messages of its key in all topics: see [Admin.StuckKeys].
//
// The number of messages of the topic that wait does not slow the others down while these are ready. Messages of the topic that were
// scheduled, and whose time comes during the pause, are passed over by each poll. At most 1000 topics of an outbox can be paused.
//
// A second call changes nothing. For a queue PauseTopic returns an error: all its messages have one topic, so use [Admin.Pause].
// It returns [ErrNotFound], and lists the existing names, if there is no outbox of this name. The outbox may have no message of
// the topic yet.
func (a *Admin) PauseTopic(ctx context.Context, target Target, topic string) error {
	if err := a.operator.PauseTopic(ctx, target.spool, topic); err != nil {
		return failed(err)
	}
	a.say("An operator paused a topic", target, watermill.LogFields{"topic": topic})
	return nil
}

// ResumeTopic ends the pause of a topic, if there is one. Processes notice within a second. The messages that have waited go
// before later ones of their keys and topic.
func (a *Admin) ResumeTopic(ctx context.Context, target Target, topic string) error {
	if err := a.operator.ResumeTopic(ctx, target.spool, topic); err != nil {
		return failed(err)
	}
	a.say("An operator resumed a topic", target, watermill.LogFields{"topic": topic})
	return nil
}

// PausedTopic is a topic of an outbox whose messages are not published.
type PausedTopic struct {
	Topic string
	// Since is when an operator paused the topic, by the database's clock.
	Since time.Time
}

// PausedTopics lists the paused topics of an outbox. The topic that was paused first comes first. A queue has none.
func (a *Admin) PausedTopics(ctx context.Context, target Target) ([]PausedTopic, error) {
	found, err := a.operator.PausedTopics(ctx, target.spool)
	if err != nil {
		return nil, failed(err)
	}
	topics := make([]PausedTopic, len(found))
	for i, topic := range found {
		topics[i] = PausedTopic(topic)
	}
	return topics, nil
}
