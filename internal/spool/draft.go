package spool

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
)

// Draft is a message to append.
type Draft struct {
	Topic     string
	MessageID string
	Key       string // none when empty
	Payload   []byte
	Metadata  map[string]string
	// Due is when the message may be handled first; the zero value means Delay from now.
	Due   time.Time
	Delay time.Duration
}

// maxBytes is what a message id and an ordering key may have, on every database: MySQL stores no more, or cuts them off without a word where sql_mode is not
// strict.
const maxBytes = 65_535

// Check returns an error where not every database can store the message under its topic, id and key. It says what to do, and no other try can succeed.
func (d *Draft) Check() error {
	if err := CheckTopic(d.Topic); err != nil {
		return err
	}
	if n := len(d.MessageID); n > maxBytes {
		return fmt.Errorf("the message id (UUID) has %d bytes, the limit is %d: give the message a shorter one, such as a hash of it", n, maxBytes)
	}
	if n := len(d.Key); n > maxBytes {
		return fmt.Errorf("the ordering key has %d bytes, the limit is %d: use a shorter one, such as a hash of it", n, maxBytes)
	}
	return nil
}

// CheckTopic returns an error where not every database can store the topic. MySQL takes two topics for the same that differ by spaces at their ends: an outage of
// one would hold up the other.
func CheckTopic(topic string) error {
	switch {
	case topic == "":
		return errors.New("the topic is empty: name one")
	case len(topic) > maxName:
		return fmt.Errorf("the topic has %d bytes, the limit is %d: use a shorter name", len(topic), maxName)
	case !isText(topic):
		return errors.New("the topic is not UTF-8 text, or has a NUL in it: use another name")
	case strings.HasSuffix(topic, " "):
		return errors.New("the topic ends with a space, and not every database tells it from the one without: use another name")
	}
	return nil
}

// Fitting cuts off what is too long of a message id or an ordering key that another program has chosen, for a dead letter: its message cannot be refused any more.
func Fitting(text []byte) []byte { return text[:min(len(text), maxBytes)] }

// SetDelay obeys the metadata of Watermill's components/delay, which has both a duration and a time, whichever of them the user has chosen: the other one is
// computed by the clock of the user's process, which may be wrong. A duration of whole milliseconds is what a user has chosen, and it counts from the database's now. One to the
// nanosecond is what was left until a time when the message was made, and then the time counts.
func (d *Draft) SetDelay(metadata message.Metadata) error {
	length, at := metadata.Get(delay.DelayedForKey), metadata.Get(delay.DelayedUntilKey)
	if length == "" && at == "" {
		return nil
	}
	duration, err := time.ParseDuration(length)
	if length != "" && err != nil { // its text has that of the metadata in it
		return fmt.Errorf("metadata %s is no duration such as 1m30s", delay.DelayedForKey)
	}
	until, err := time.Parse(time.RFC3339, at)
	switch {
	case length == "" && err != nil:
		return fmt.Errorf("metadata %s is no time such as 2006-01-02T15:04:05Z", delay.DelayedUntilKey)
	case length == "":
		d.Due = until
	case err != nil || duration%time.Millisecond == 0:
		d.Delay = max(duration, 0)
	default:
		d.Due = withinSecond(until, time.Now().Add(duration))
	}
	return nil
}

// withinSecond gives a time that was cut to whole seconds its fraction back, as far as the estimate, which may be by a wrong clock, tells.
func withinSecond(cut, estimate time.Time) time.Time {
	if last := cut.Add(time.Second - time.Microsecond); estimate.After(last) {
		return last
	}
	if estimate.Before(cut) {
		return cut
	}
	return estimate
}
