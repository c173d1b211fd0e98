package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/admin/internal/operatorsql"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Pause stops an outbox or a queue, in all processes and also in those that start later, until
// [Admin.Resume]: as a whole with [Filter.All], or the messages with one ordering key or one topic.
// Messages can still be written to it. Processes notice the pause within a second: running handlers
// and calls to the broker end, and no further message is begun. No attempt is counted, and nothing
// is lost, whatever crashes. A second call changes nothing, unless it has another reason or end
// for a topic or the whole.
//
// The reason and the actor are kept with the pause, up to 255 bytes of each. With [Filter.Until]
// the pause of a topic or of the whole ends by itself at that time, by the database's clock, and
// processes notice within a second. An end that has passed is an [ErrInvalid].
//
// While any key is paused, each read of the outbox or queue costs a little more.
//
// Only outboxes have topics to pause: all messages of a queue have one topic. Other topics go on,
// also with messages of the same ordering keys, as they do during an outage of the topic. The
// messages of the topic itself keep the order of their keys. But a message of the topic that has
// failed, and waits for its next attempt, still holds back the later messages of its key in all
// topics: see [Admin.StuckKeys]. The number of messages of the topic that wait does not slow the
// others down while these are ready. Messages of the topic that were scheduled, and whose time
// comes during the pause, are passed over by each poll. At most 1000 topics of an outbox can be
// paused. The outbox may have no message of the topic yet.
//
// Pause fails with [ErrNotFound], and lists the existing names, if there is no outbox or queue of
// this name. The same holds for the other methods that take a [Target].
func (a *Admin) Pause(ctx context.Context, filter Filter, reason ...string) error {
	until := filter.Until
	filter.Until = time.Time{}
	if err := a.checkEnd(ctx, filter, until); err != nil {
		return fmt.Errorf("admin: pause %s: %w", filter.Target, err)
	}
	pause := operatorsql.Pause{By: a.operator.audit.ActorIn(ctx), Reason: spool.NameText(strings.Join(reason, "; ")), Ends: micros(until)}
	return a.pausing(filter, "pause", "paused", part{
		whole: func(name string) error { return a.operator.Pause(ctx, name, pause) },
		key:   func(name, key string) error { return a.operator.PauseKey(ctx, name, key, pause) },
		topic: func(name, topic string) error { return a.operator.PauseTopic(ctx, name, topic, pause) },
	})
}

// checkEnd refuses an end of a pause that has passed, or of that of a key: keys go on only when an
// operator has looked at them.
func (a *Admin) checkEnd(ctx context.Context, filter Filter, until time.Time) error {
	if until.IsZero() {
		return nil
	}
	if filter.Key != "" {
		return invalid(errors.New("until: the pause of a key has no end: leave it out, and resume the key"))
	}
	now, err := a.Now(ctx)
	if err == nil && !until.After(now) {
		err = invalid(fmt.Errorf("until: %s has passed: it is %s by the database's clock", until.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339)))
	}
	return err
}

// Resume ends a pause, if there is one, of the whole outbox or queue with [Filter.All], or of one
// key or one topic. Processes notice within a second. Keys and topics that were paused by
// themselves stay paused when the whole is resumed.
//
// Of a key it also gives a parked message all its attempts again, from now on: a queue with Park
// goes on with the key. A crash may interrupt it between the two steps, so it can be called again.
// The messages of a topic that have waited go before later ones of their keys and topic.
func (a *Admin) Resume(ctx context.Context, filter Filter) error {
	return a.pausing(filter, "resume", "resumed", part{
		whole: func(name string) error { return a.operator.Resume(ctx, name) },
		key:   func(name, key string) error { return a.operator.ResumeKey(ctx, name, key) },
		topic: func(name, topic string) error { return a.operator.ResumeTopic(ctx, name, topic) },
	})
}

// part are the actions on an outbox or a queue as a whole, on a key and on a topic.
type part struct {
	whole      func(name string) error
	key, topic func(name, of string) error
}

func (a *Admin) pausing(filter Filter, verb, past string, act part) error {
	err := filter.mistakesOfPause()
	if err != nil {
		return fmt.Errorf("admin: %s %s: %w", verb, filter.Target, invalid(err))
	}
	name, what, fields := filter.Target.stored(), "an outbox or a queue", watermill.LogFields(nil)
	switch {
	case filter.Key != "":
		what, fields, err = "a key", watermill.LogFields{"key": filter.Key}, act.key(name, filter.Key)
	case filter.Topic != "":
		what, fields, err = "a topic", watermill.LogFields{"topic": filter.Topic}, act.topic(name, filter.Topic)
	default:
		err = act.whole(name)
	}
	if err != nil {
		return failed(err)
	}
	a.say("An operator "+past+" "+what, filter.Target, fields)
	return nil
}

// mistakesOfPause returns all mistakes in a filter for a pause. Keys may have any bytes.
func (f Filter) mistakesOfPause() error {
	topic := f.Topic
	f.Topic = "" // the action checks it
	err := f.mistakes(pauses)
	if f.Limit != 0 || f.After != "" {
		err = errors.Join(err, errors.New("limit and after: they are for lists: leave them out"))
	}
	switch {
	case f.Key != "" && topic != "":
		err = errors.Join(err, errors.New("key and topic: name one of them, and then the other in a second call"))
	case f.All && f.Key+topic != "":
		err = errors.Join(err, errors.New("all: it is for the whole outbox or queue: leave it out, or the key and the topic"))
	case !f.All && f.Key+topic == "":
		err = errors.Join(err, errNoKey)
	}
	return err
}

var errNoKey = errors.New("the key and the topic are empty: name one of them, or set All for the whole outbox or queue; for a message without a key, use Reschedule or Bury with its id")

// Paused is an ordering key whose messages are not handled, or a topic of an outbox whose messages
// are not published.
type Paused struct {
	// Key is set for a key, and Topic for a topic.
	Key   string `json:"key,omitempty"`
	Topic string `json:"topic,omitempty"`
	// Since is when an operator paused it, by the database's clock.
	Since time.Time `json:"paused_since"`
	// By and Reason say who paused it, and why.
	By     string `json:"paused_by,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Until is when the pause ends by itself; zero for one that does not.
	Until time.Time `json:"paused_until,omitzero"`
}

// text says since when and until when it is paused, by whom and why.
func (p Paused) text() string {
	text := utcText(p.Since)
	if !p.Until.IsZero() {
		text += ", until " + utcText(p.Until)
	}
	if p.By != "" {
		text += ", by " + p.By
	}
	if p.Reason != "" {
		text += " (" + p.Reason + ")"
	}
	return text
}

// Paused lists the paused keys and topics of an outbox or a queue: first keys, then topics, and of
// each the one first that was paused first. [QueueInfo] says whether it is paused as a whole.
func (a *Admin) Paused(ctx context.Context, target Target) ([]Paused, error) {
	s, err := a.operator.find(ctx, target.stored())
	if err != nil {
		return nil, failed(failedTo("list what is paused of", target.stored(), err))
	}
	keys, err := a.operator.PausedKeys(ctx, s)
	if err != nil {
		return nil, failed(err)
	}
	topics, err := a.operator.PausedTopics(ctx, s)
	if err != nil {
		return nil, failed(err)
	}
	return append(keys, topics...), nil
}

// say logs what an operator did.
func (a *Admin) say(what string, target Target, fields watermill.LogFields) {
	a.logger.Info(what, watermill.LogFields{"target": target.String()}.Add(fields))
}
