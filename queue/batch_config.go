package queue

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/due"
	"github.com/postbox-go/watermill-postbox/internal/inbox"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
)

// defaultBatchSize is the default of Size in [BatchConfig].
const defaultBatchSize = 100

// BatchConfig says when waiting messages form a batch, and how the batch is handled. Without an age
// and a schedule, a batch is handed out as soon as it is full.
type BatchConfig struct {
	// Size is the maximum number of messages of a batch. Without a schedule, a batch is handed out
	// when it reaches this size. Up to three pages of messages, each at least of this size, are in
	// memory. Defaults to 100.
	Size int
	// Age is the longest time that the oldest message waits for others, by the database's clock.
	// Defaults to for ever, so set it, or a Schedule, unless messages never stop coming.
	Age time.Duration
	// Schedule is a cron expression, such as "0 0 * * *" for each midnight, or a descriptor such as
	// "@daily". A cron expression may have seconds as an optional sixth field in front. At each
	// scheduled time, all messages that were stored until then are handed out, in as few batches as
	// Size allows: see [LastBatch]. Messages that are stored later wait for the next time, and are
	// not held in memory. Messages with a delay go out when it is over, whatever the schedule. A
	// scheduled time that passed while no process ran is made up for.
	// Schedule cannot be combined with Age.
	//
	// When clocks are set forward, a scheduled time that they skip comes immediately after the
	// change. When clocks are set back, a scheduled time that clocks show twice comes once. A
	// schedule whose minute or hour begins with * follows elapsed time instead, as with cron
	// daemons.
	Schedule string
	// TimeZone is the time zone of the schedule. Defaults to UTC.
	TimeZone *time.Location
	// PerKey makes batches of messages with the same ordering key; a message without a key is a
	// batch by itself. It needs Age or Schedule, so that keys with few messages do not fill the
	// memory for ever. Without PerKey a batch spans the whole queue, and one process at a time
	// handles the queue, so that batches are as large as possible.
	PerKey bool

	// Worker holds the other settings. Concurrency defaults to 1: one batch after the other.
	// Unordered or a MicroBatch is an error. Within a batch, messages are in the order in which
	// they were stored.
	Worker Config
}

func (c *BatchConfig) setDefaults() {
	c.Size = cmp.Or(c.Size, defaultBatchSize)
	if c.TimeZone == nil {
		c.TimeZone = time.UTC
	}
	c.Worker.Concurrency = cmp.Or(c.Worker.Concurrency, 1)
	c.Worker.PageSize = cmp.Or(c.Worker.PageSize, max(drain.DefaultPageSize, c.Size))
	c.Worker.setDefaults()
}

// validate returns all problems of the configuration.
func (c BatchConfig) validate(kind dialect.Kind) error {
	problems := []error{c.Worker.validate(kind)}
	if c.Size < 1 || c.Size > c.Worker.PageSize {
		problems = append(problems, fmt.Errorf("Size: %d is not between 1 and PageSize, %d", c.Size, c.Worker.PageSize))
	}
	if c.Age < 0 {
		problems = append(problems, fmt.Errorf("Age: %s is negative", c.Age))
	}
	if c.Age > 0 && c.Schedule != "" {
		problems = append(problems, errors.New("Age and Schedule: set only one of them"))
	}
	if c.PerKey && c.Age == 0 && c.Schedule == "" {
		problems = append(problems, errors.New("PerKey: set Age or Schedule too, or keys with few messages wait for ever"))
	}
	if c.Worker.MicroBatch > 1 || c.Worker.Unordered {
		problems = append(problems, errors.New("Worker: leave out Unordered and MicroBatch, which are for a Subscriber"))
	}
	if _, err := c.rule().Times(); err != nil {
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// rule returns the rule by which messages are due.
func (c BatchConfig) rule() due.Rule {
	return due.Rule{Age: c.Age, Schedule: c.Schedule, Zone: c.TimeZone}
}

// gather returns the rule that tells when a batch is complete.
func (c BatchConfig) gather() (*schedule.Gather, error) {
	gather := &schedule.Gather{PerKey: c.PerKey, OnlyDue: c.Schedule != ""}
	if c.Schedule == "" && c.Age == 0 {
		gather.Due = func(time.Time) time.Time { return time.Time{} }
		return gather, nil
	}
	var err error
	gather.Due, err = c.rule().After()
	return gather, err
}

// drainer returns the engine's form of the configuration.
func (c BatchConfig) drainer(core *inbox.Core) (drain.Config, error) {
	gather, err := c.gather()
	settings := c.Worker.drainer(core)
	settings.BatchSize, settings.Gather, settings.Exclusive, settings.Batches = c.Size, gather, !c.PerKey, c.rule().Encode()
	return settings, err
}
