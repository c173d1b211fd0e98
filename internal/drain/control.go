package drain

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// under returns the configuration with the stored settings of operators applied.
func (c Config) under(s spool.Settings) Config {
	if s.PageSize > 0 {
		c.PageSize = max(s.PageSize, c.BatchSize)
	}
	if s.Concurrency > 0 {
		c.Workers = s.Concurrency
	}
	if s.PollMax > 0 {
		c.PollMax = s.PollMax
		c.PollMin = min(c.PollMin, c.PollMax)
	}
	if s.Attempts != 0 {
		c.Retry.Attempts = s.Attempts
	}
	c.Limits = s.Limits(c.Limits)
	if s.History != 0 {
		c.History = max(s.History, 0)
	}
	return c
}

// controlInterval is how often the stored settings are read, unless a read of messages has brought
// their version.
const controlInterval = time.Second

// controlGrace is how much later the settings are read if a read of messages is about to bring
// their version.
const controlGrace = 100 * time.Millisecond

// unknownVersion is a version that no spool has.
const unknownVersion = -1

// control holds the state of the operators' settings that a drainer has applied.
type control struct {
	version    int64 // the version that was applied
	paused     bool
	pausedKeys bool
	topics     []string // the paused ones
	checkedAt  time.Time
}

// applySettings checks, at least once in [controlInterval], whether operators have changed the
// settings, and applies them. During a pause, running batches end and no message is handed out.
// Messages that wait in memory are dropped, since a pause of a key or a topic may concern them.
// What has an outage is tried at once: an operator who acts may know that it is over.
func (d *Drainer) applySettings(ctx context.Context) error {
	if time.Now().Before(d.controlDue()) {
		return nil
	}
	found, text, err := d.readControl(ctx)
	d.heardSettings(err, found.paused || d.reader.full)
	if err != nil {
		return fmt.Errorf("read settings of spool %q: %w", d.spool.Name(), err)
	}
	d.limits.reportLimits()
	before := d.control
	d.control = found
	ended := found.paused != before.paused || len(found.topics) != len(before.topics)
	if found.version == before.version && !ended {
		return nil
	}
	if before.paused && !found.paused {
		d.pace.slowStart.Begin()
	}
	settings, err := spool.DecodeSettings(text)
	if err != nil {
		d.logger.Error("Postbox ignores stored settings that it cannot read", err, watermill.LogFields{"spool": d.spool.Name()})
	}
	d.config = d.configured.under(settings)
	d.scheduler.SetLimits(d.config.Limits)
	d.lease.permit()
	for _, m := range d.scheduler.DropAll() {
		d.lanes.unexpose(m)
	}
	d.workers.resize() // after the waiting messages are dropped, so that new workers do not take them
	d.lanes.rewind()
	d.pace.now()
	d.pace.pause = d.config.PollMin
	if d.config.Circuits != nil {
		d.config.Circuits().Hurry()
	}
	return nil
}

// readControl reads what operators have stored, and the text of the settings. A pause whose end has
// come, by the database's clock, is none: that changes no version, but the number of paused topics.
// They are read after the version: if they change in between, the next check reads them again.
func (d *Drainer) readControl(ctx context.Context) (found control, settings string, err error) {
	var paused sql.NullInt64
	var keys, topics int
	query := d.spool.Statements.Spools(d.id.Load())
	err = d.db.QueryRowContext(ctx, query.Text, query.Args...).Scan(
		new(int64), new(string), &found.version, &paused, new(string), new(string), new(int64), &settings, &keys, &topics,
	)
	found.paused, found.pausedKeys = paused.Valid, keys > 0
	switch {
	case err != nil || topics == 0:
	case found.version == d.control.version && topics == len(d.control.topics):
		found.topics = d.control.topics
	default:
		found.topics, err = d.readPausedTopics(ctx)
	}
	found.checkedAt = time.Now()
	return found, settings, err
}

func (d *Drainer) readPausedTopics(ctx context.Context) (topics []string, err error) {
	query := dialect.Query{Text: d.spool.Statements.PausedTopics, Args: []any{d.id.Load()}}
	err = spool.Each(ctx, d.db, query, func(scan spool.Scan) error {
		var topic string
		err := scan(&topic, new(int64), new(string), new(string), new(int64))
		topics = append(topics, topic)
		return err
	})
	return topics, err
}

// controlDue returns when to read the settings. It is a little later if a read of messages is about
// to bring their version, so that a drainer without work needs no extra statement. A look brings
// it, too.
func (d *Drainer) controlDue() time.Time {
	if d.idle.active && !d.control.checkedAt.IsZero() {
		return d.idle.lookAt.Add(controlGrace)
	}
	due := d.control.checkedAt.Add(controlInterval)
	known := !d.control.checkedAt.IsZero()
	if late := due.Add(controlGrace); known && !d.reader.full && !d.control.paused && d.pace.at.Before(late) {
		return late
	}
	return due
}

// observeVersion takes in the version of the settings that a read of messages has brought. It does
// not tell that the pause of a topic has ended, so these are read as often as during a pause.
func (c *core) observeVersion(version int64) {
	switch {
	case version != c.control.version:
		c.control.checkedAt = time.Time{} // read the settings immediately
		c.pace.now()
	case len(c.control.topics) == 0:
		c.control.checkedAt = time.Now()
	}
}
