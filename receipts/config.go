package receipts

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// minRetention is the least Retention. A shorter one would delete receipts before an operator sees
// them.
const minRetention = time.Minute

// defaultRetention is the default of Retention in [Config].
const defaultRetention = 7 * 24 * time.Hour

// Config says what a receiver does with receipts. The zero value has all defaults.
type Config struct {
	// Retention is how long a receipt is kept after the time at which it was due; one that was not
	// awaited is due when it comes. A receipt that was not awaited, of a message that was handled
	// longer ago than that, is counted and ignored. At least one minute. Processes of one database
	// should have the same value. Defaults to 7 days.
	Retention time.Duration
	// OnMissing is called for each receipt that has not come in time, at least once for a message
	// and a consumer. One process at a time calls it, for one receipt after the other, within about
	// five seconds after the time has passed. After an error or a panic it is called again, at
	// least five seconds later. After a crash it may be called again for the same receipts. It
	// should return within a few seconds, and end when its context does: for each page of 100
	// receipts there are 15 s, less after a call that used them up, down to a second, and a process
	// that takes much longer may be replaced by another one, which calls it as well. Defaults to
	// none; such receipts are only counted.
	OnMissing func(ctx context.Context, params MissingParams) error
}

// MissingParams is a receipt that has not come in time.
type MissingParams struct {
	// Topic and MessageID name the message, and Consumer who has not handled it, or whose receipt
	// is still on the way.
	Topic, MessageID, Consumer string
	// SentAt is when the message was written to the outbox, or the time that its producer gave it,
	// and DueAt is when the receipt was due. Both are of the database's clock.
	SentAt, DueAt time.Time
}

func (c *Config) setDefaults() {
	c.Retention = cmp.Or(c.Retention, defaultRetention)
}

// validate returns all problems of the configuration.
func (c Config) validate() error {
	if c.Retention < minRetention {
		return fmt.Errorf("Retention: %s is less than %s: receipts would be deleted before an operator sees them", c.Retention, minRetention)
	}
	return nil
}
