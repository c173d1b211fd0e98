package admin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/postbox-go/watermill-postbox/admin/internal/audit"
	"github.com/postbox-go/watermill-postbox/admin/internal/operatorsql"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// maxPausedTopics limits the paused topics of a spool, since each read of messages has a list of
// them.
const maxPausedTopics = 1000

var (
	errTooManyTopics  = fmt.Errorf("%d topics are paused, and there may be no more: resume some, or pause the outbox as a whole", maxPausedTopics)
	errTopicNotStored = errors.New("no message can have this topic: a topic has 1 to 255 bytes, is UTF-8 text without NUL, and does not end with a space")
)

// PauseTopic makes the drainers of an outbox stop reading the messages of a topic.
func (o *operator) PauseTopic(ctx context.Context, name, topic string, pause operatorsql.Pause) error {
	what := fmt.Sprintf("pause topic %.60q of", topic)
	if err := checkTopic(name, topic, "pause", "Pause"); err != nil {
		return failedTo(what, name, err)
	}
	act := audit.NewAct(audit.ActPauseTopic, name).OnNamed("topic", topic).Noting(noteOfPause(pause))
	return o.change(ctx, what, act, func(tx *sql.Tx, s *spool.Spool) (bool, error) {
		if err := spool.Run(ctx, tx, o.statements.ReplaceTopicPause(s.ID(), topic, pause)); err != nil {
			return false, err
		}
		paused, err := act.Changed(spool.Directly(ctx, tx, o.statements.PauseTopic(s.ID(), topic, pause)))
		if err != nil || !paused {
			return false, err
		}
		topics, err := readPaused(ctx, tx, o.statements.PausedTopics, s.ID(), topicOf)
		if err == nil && len(topics) > maxPausedTopics {
			err = invalid(errTooManyTopics)
		}
		return true, err
	})
}

// ResumeTopic ends the pause of a topic.
func (o *operator) ResumeTopic(ctx context.Context, name, topic string) error {
	what := fmt.Sprintf("resume topic %.60q of", topic)
	if err := checkTopic(name, topic, "resume", "Resume"); err != nil {
		return failedTo(what, name, err)
	}
	act := audit.NewAct(audit.ActResumeTopic, name).OnNamed("topic", topic)
	return o.change(ctx, what, act, func(tx *sql.Tx, s *spool.Spool) (bool, error) {
		return act.Changed(spool.Directly(ctx, tx, o.statements.ResumeTopic(s.ID(), topic)))
	})
}

// checkTopic refuses a queue, and a topic that no message can have.
func checkTopic(name, topic, verb, method string) error {
	if strings.HasPrefix(name, spool.QueuePrefix) {
		return invalid(fmt.Errorf("all messages of a queue have the queue's name as their topic: %s the queue as a whole, with %s", verb, method))
	}
	if topic == "" || spool.CheckName(topic) != nil {
		return invalid(errTopicNotStored)
	}
	return nil
}
