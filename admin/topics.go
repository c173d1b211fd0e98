package admin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/audit"
	"github.com/postbox-go/watermill-postbox/internal/spool"
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

// PausedTopics lists the paused topics of an outbox. The topic that was paused first comes first. A queue has none.
func (a *Admin) PausedTopics(ctx context.Context, target Target) ([]Paused, error) {
	s, err := a.operator.find(ctx, target.spool)
	if err != nil {
		return nil, failed(failedTo("list paused topics of", target.spool, err))
	}
	topics, err := readPausedTopics(ctx, a.db, a.statements.PausedTopics, s.ID())
	if err != nil {
		return nil, failed(failedTo("list paused topics of", target.spool, err))
	}
	return topics, nil
}

// maxPausedTopics limits the paused topics of a spool, since each read of messages has a list of
// them.
const maxPausedTopics = 1000

var (
	errQueueTopic     = errors.New("all messages of a queue have the queue's name as their topic: pause the queue as a whole, with Pause")
	errTooManyTopics  = fmt.Errorf("%d topics are paused, and there may be no more: resume some, or pause the outbox as a whole", maxPausedTopics)
	errTopicNotStored = errors.New("no message can have this topic: a topic has 1 to 255 bytes, is UTF-8 text without NUL, and does not end with a space")
)

// PauseTopic makes the drainers of an outbox stop reading the messages of a topic.
func (o *operator) PauseTopic(ctx context.Context, name, topic string) error {
	what := fmt.Sprintf("pause topic %.60q of", topic)
	if err := checkTopic(name, topic); err != nil {
		return failedTo(what, name, err)
	}
	act := audit.NewAct(audit.ActPauseTopic, name).OnNamed("topic", topic)
	return o.change(ctx, what, act, func(tx *sql.Tx, s *spool.Spool) (bool, error) {
		paused, err := act.Changed(spool.Directly(ctx, tx, o.statements.PauseTopic(s.ID(), topic)))
		if err != nil || !paused {
			return false, err
		}
		topics, err := readPausedTopics(ctx, tx, o.statements.PausedTopics, s.ID())
		if err == nil && len(topics) > maxPausedTopics {
			err = invalid(errTooManyTopics)
		}
		return true, err
	})
}

// ResumeTopic ends the pause of a topic.
func (o *operator) ResumeTopic(ctx context.Context, name, topic string) error {
	what := fmt.Sprintf("resume topic %.60q of", topic)
	if err := checkTopic(name, topic); err != nil {
		return failedTo(what, name, err)
	}
	act := audit.NewAct(audit.ActResumeTopic, name).OnNamed("topic", topic)
	return o.change(ctx, what, act, func(tx *sql.Tx, s *spool.Spool) (bool, error) {
		return act.Changed(spool.Directly(ctx, tx, o.statements.ResumeTopic(s.ID(), topic)))
	})
}

// checkTopic refuses a queue, and a topic that no message can have.
func checkTopic(name, topic string) error {
	if strings.HasPrefix(name, spool.QueuePrefix) {
		return invalid(errQueueTopic)
	}
	if topic == "" || spool.CheckName(topic) != nil {
		return invalid(errTopicNotStored)
	}
	return nil
}

func readPausedTopics(ctx context.Context, db spool.Querier, query string, id int64) (topics []Paused, err error) {
	rows, err := db.QueryContext(ctx, query, id)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	topics = []Paused{}
	for rows.Next() {
		var topic Paused
		var since int64
		if err := rows.Scan(&topic.Topic, &since); err != nil {
			return nil, err
		}
		topic.Since = time.UnixMicro(since)
		topics = append(topics, topic)
	}
	return topics, rows.Err()
}
