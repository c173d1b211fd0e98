package inboxstore

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Defaults of the settings in [Config], which explains them.
const (
	defaultClaimRetention      = 7 * 24 * time.Hour
	defaultDeadLetterRetention = 30 * 24 * time.Hour
	defaultCacheSize           = 10_000
	defaultLanes               = spool.DefaultLanes
	defaultCloseTimeout        = 30 * time.Second
	defaultMaxPayload          = 16 << 20
)

// Config says how long a store remembers, and what it takes. The zero value has all defaults.
type Config struct {
	// ClaimRetention is how long a handled message is remembered, and so the longest time after which a
	// redelivery is still known as one: keep it above the longest that your broker may take, and above what you
	// may ever replay. Defaults to 7 days; negative keeps claims for ever.
	ClaimRetention time.Duration
	// DeadLetterRetention is how long dead letters and failures are kept. Defaults to 30 days; negative keeps them.
	DeadLetterRetention time.Duration
	// CacheSize is about the number of committed claims that are remembered in memory too, so that a prompt duplicate costs
	// one SELECT and no transaction: 8,000 at least, and fewer where ids are longer than a UUID. The default of 10,000 takes 4 MB, and
	// 100,000 take 17 MB. Negative turns it off.
	CacheSize int
	// Lanes is the number of shards by ordering key of each queue of deferred messages, and so the most processes that
	// can share one. It is stored with the queue. At most 256. Defaults to 32.
	Lanes int
	// MaxPayload is the largest payload and metadata together, in bytes, that a queue takes; a larger message is an
	// error. Defaults to 16 MiB. MySQL needs a max_allowed_packet above it.
	MaxPayload int
	// TxOptions for the transactions that handlers work in, such as an isolation level. Defaults to the
	// database's own. Serialization failures are run again.
	TxOptions *sql.TxOptions
	// CloseTimeout is how long a handler may go on with a live context after the context of its delivery has been
	// cancelled, as Watermill's router does to all of them when it closes. The handler of a batch that ignores the
	// end of its context has two seconds more. Then Close returns without it, and the lane of its messages goes to other processes when the
	// lease has run out. A subscriber of package queue does not wait for such a handler, but Watermill's router does, up to its own
	// time-out. It is also how long calls of OnDead in the config of a queue may go on after Close. Defaults to 30 s.
	CloseTimeout time.Duration
	// DisableNotify leaves it to polling to wake the subscribers of other processes on PostgreSQL when a message was
	// deferred, and saves up to four NOTIFYs a second and queue.
	DisableNotify bool
}

func (c *Config) setDefaults() {
	c.ClaimRetention = cmp.Or(c.ClaimRetention, defaultClaimRetention)
	c.DeadLetterRetention = cmp.Or(c.DeadLetterRetention, defaultDeadLetterRetention)
	c.CacheSize = cmp.Or(c.CacheSize, defaultCacheSize)
	c.Lanes = cmp.Or(c.Lanes, defaultLanes)
	c.MaxPayload = cmp.Or(c.MaxPayload, defaultMaxPayload)
	c.CloseTimeout = cmp.Or(c.CloseTimeout, defaultCloseTimeout)
}

// validate returns all that is wrong with the configuration.
func (c Config) validate() (err error) {
	if c.Lanes < 1 || c.Lanes > spool.MaxLanes {
		err = errors.Join(err, fmt.Errorf("Lanes: %d is not between 1 and %d", c.Lanes, spool.MaxLanes))
	}
	if c.MaxPayload < 0 {
		err = errors.Join(err, fmt.Errorf("MaxPayload: %d bytes is negative", c.MaxPayload))
	}
	if c.CloseTimeout < 0 {
		err = errors.Join(err, fmt.Errorf("CloseTimeout: %s is negative", c.CloseTimeout))
	}
	return err
}
