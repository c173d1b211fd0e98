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
	Key       string // empty for no key
	Payload   []byte
	Metadata  map[string]string
	// Due is the earliest time at which the message may be handled. The zero value means Delay from
	// now.
	Due   time.Time
	Delay time.Duration
	// UniqueKey is empty for a message that may be stored in any case. Replace deletes the message
	// that waits under the key, instead of leaving out this one: see [Spool.AppendUnique].
	UniqueKey string
	Replace   bool
	// Awaited says that it must be known whether a message with a unique key was stored, since
	// receipts of it are awaited.
	Awaited bool
}

// maxBytes is the maximum length of a message id and of an ordering key, on every database. MySQL
// stores no more, or truncates longer ones silently if sql_mode is not strict.
const maxBytes = 65_535

// Check returns an error if some database cannot store the message under its topic, id and key. The
// error says what to do. Another try cannot succeed.
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

// CheckTopic returns an error if some database cannot store the topic. MySQL treats two topics as
// equal that differ only by spaces at their ends, so an outage of one would hold up the other.
func CheckTopic(topic string) error {
	switch {
	case topic == "":
		return errors.New("the topic is empty: name one")
	case len(topic) > maxName:
		return fmt.Errorf("the topic has %d bytes, the limit is %d: use a shorter name", len(topic), maxName)
	case !isText(topic):
		return errors.New("the topic is not UTF-8 text, or contains NUL: use another name")
	case strings.HasSuffix(topic, " "):
		return errors.New("the topic ends with a space, which some databases ignore when they compare names: use another name")
	}
	return nil
}

// Fitting truncates a message id or an ordering key that another program has chosen. It is for dead
// letters, whose messages can no longer be refused.
func Fitting(text []byte) []byte { return text[:min(len(text), maxBytes)] }

// SetDelay applies the metadata of Watermill's components/delay. It contains both a duration and a
// time. The user has chosen one of them; the other one is computed with the clock of the user's
// process, which may be wrong. A duration of whole milliseconds was chosen by the user, and counts
// from the database's now. A duration with nanoseconds was the remaining time when the message was
// made, so then the time counts.
func (d *Draft) SetDelay(metadata message.Metadata) error {
	length, at := metadata.Get(delay.DelayedForKey), metadata.Get(delay.DelayedUntilKey)
	if length == "" && at == "" {
		return nil
	}
	duration, err := time.ParseDuration(length)
	if length != "" && err != nil { // the text of err includes that of the metadata
		return fmt.Errorf("metadata %s is not a duration such as 1m30s", delay.DelayedForKey)
	}
	until, err := time.Parse(time.RFC3339, at)
	switch {
	case length == "" && err != nil:
		return fmt.Errorf("metadata %s is not a time such as 2006-01-02T15:04:05Z", delay.DelayedUntilKey)
	case length == "":
		d.Due = until
	case err != nil || duration%time.Millisecond == 0:
		d.Delay = max(duration, 0)
	default:
		d.Due = withinSecond(until, time.Now().Add(duration))
	}
	return nil
}

// withinSecond restores the fraction of a time that was truncated to whole seconds. It takes the
// fraction from the estimate, as far as possible, since the estimate may come from a wrong clock.
func withinSecond(cut, estimate time.Time) time.Time {
	if last := cut.Add(time.Second - time.Microsecond); estimate.After(last) {
		return last
	}
	if estimate.Before(cut) {
		return cut
	}
	return estimate
}
