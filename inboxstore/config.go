package inboxstore

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Defaults of the settings in [Config], where they are explained.
const (
	defaultClaimRetention      = 7 * 24 * time.Hour
	defaultDeadLetterRetention = 30 * 24 * time.Hour
	defaultCacheSize           = 10_000
	defaultCloseTimeout        = 30 * time.Second
	defaultMaxPayload          = 16 << 20
)

// Config says how long a store remembers messages, and what it accepts. The zero value has all
// defaults.
type Config struct {
	// ClaimRetention is how long a handled message is remembered. A redelivery after this time is
	// handled again as a new message. Keep it above the longest time after which your broker may
	// redeliver, for which an outbox may stand still, and above the age of any message that you may
	// requeue or replay. Defaults to 7 days; negative keeps claims for ever.
	ClaimRetention time.Duration
	// DeadLetterRetention is how long dead letters and failures are kept. Defaults to 30 days;
	// negative keeps them for ever.
	DeadLetterRetention time.Duration
	// CacheSize is the approximate number of handled messages whose claims are also remembered in
	// memory. A prompt duplicate then costs one SELECT and no transaction. Messages that are stored
	// in a queue do not use it. The cache holds at least 8,000 claims, and fewer if ids are longer
	// than a UUID. The default of 10,000 takes 4 MB, and 100,000 take 17 MB, from the first handled
	// message on. Negative turns the cache off.
	CacheSize int
	// MaxPayload is the maximum size in bytes of payload and metadata together that a queue
	// accepts. A larger message is a [postbox.Permanent] error, with which middleware.Defer makes
	// it a dead letter. Defaults to 16 MiB. MySQL needs a max_allowed_packet above the largest
	// message that a broker delivers: a larger one cannot become a dead letter either, and comes
	// again and again.
	MaxPayload int
	// TxOptions are the options of the transactions in which handlers run, such as an isolation
	// level. Defaults to the database's own. Transactions that end with a serialization failure are
	// run again.
	TxOptions *sql.TxOptions
	// CloseTimeout is how long a handler may continue with a live context after the context of its
	// delivery has been cancelled. Watermill's router cancels all of them when it closes. The
	// handler of a batch that ignores the end of its context has two seconds more. Then Close
	// returns without it, and other processes take the lane of its messages when the lease has
	// expired. A subscriber of package queue does not wait for such a handler, but Watermill's
	// router does, up to its own time-out. CloseTimeout is also how long calls of OnDead in the
	// config of a queue may continue after Close. Defaults to 30 s.
	CloseTimeout time.Duration
	// DisableNotify turns off the NOTIFY on PostgreSQL that wakes the subscribers of other
	// processes when a message was deferred. They then find the message by polling. It saves up to
	// four NOTIFYs a second for each queue.
	DisableNotify bool
}

func (c *Config) setDefaults() {
	c.ClaimRetention = cmp.Or(c.ClaimRetention, defaultClaimRetention)
	c.DeadLetterRetention = cmp.Or(c.DeadLetterRetention, defaultDeadLetterRetention)
	c.CacheSize = cmp.Or(c.CacheSize, defaultCacheSize)
	c.MaxPayload = cmp.Or(c.MaxPayload, defaultMaxPayload)
	c.CloseTimeout = cmp.Or(c.CloseTimeout, defaultCloseTimeout)
}

// validate returns all problems of the configuration.
func (c Config) validate() (err error) {
	if c.MaxPayload < 0 {
		err = errors.Join(err, fmt.Errorf("MaxPayload: %d bytes is negative", c.MaxPayload))
	}
	if c.CloseTimeout < 0 {
		err = errors.Join(err, fmt.Errorf("CloseTimeout: %s is negative", c.CloseTimeout))
	}
	return err
}
