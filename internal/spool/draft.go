package spool

import (
	"fmt"
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

// SetDelay obeys the metadata of Watermill's components/delay. It sets both a duration and a time; the
// duration is preferred, since only that does not depend on the clock of whoever made the message.
func (d *Draft) SetDelay(metadata message.Metadata) error {
	if text := metadata.Get(delay.DelayedForKey); text != "" {
		duration, err := time.ParseDuration(text)
		if err != nil { // whose text has that of the metadata in it
			return fmt.Errorf("metadata %s is no duration such as 1m30s", delay.DelayedForKey)
		}
		d.Delay = max(duration, 0)
		return nil
	}
	if text := metadata.Get(delay.DelayedUntilKey); text != "" {
		until, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return fmt.Errorf("metadata %s is no time such as 2006-01-02T15:04:05Z", delay.DelayedUntilKey)
		}
		d.Due = until
	}
	return nil
}
