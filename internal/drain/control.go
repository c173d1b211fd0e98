package drain

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"

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
func (d *Drainer) applySettings(ctx context.Context) error {
	if time.Now().Before(d.controlDue()) {
		return nil
	}
	found, text, err := d.readControl(ctx)
	d.heardSettings(err, found.paused)
	if err != nil {
		return fmt.Errorf("read settings of spool %q: %w", d.spool.Name(), err)
	}
	d.limits.reportLimits()
	before := d.control
	d.control = found
	if found.version == before.version {
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
	return nil
}

// readControl reads what operators have stored, and the text of the settings. The paused topics are
// read after the version: if operators change them in between, the next check finds another
// version, and reads them again.
func (d *Drainer) readControl(ctx context.Context) (found control, settings string, err error) {
	var paused sql.NullInt64
	var keys, topics int
	query := d.spool.Statements.Spools(d.id.Load())
	err = d.db.QueryRowContext(ctx, query.Text, query.Args...).Scan(new(int64), new(string), &found.version, &paused, &settings, &keys, &topics)
	found.paused, found.pausedKeys = paused.Valid, keys > 0
	switch {
	case err != nil || topics == 0:
	case found.version == d.control.version:
		found.topics = d.control.topics
	default:
		found.topics, err = d.readPausedTopics(ctx)
	}
	found.checkedAt = time.Now()
	return found, settings, err
}

func (d *Drainer) readPausedTopics(ctx context.Context) (topics []string, err error) {
	rows, err := d.db.QueryContext(ctx, d.spool.Statements.PausedTopics, d.id.Load())
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var topic string
		var since int64
		if err := rows.Scan(&topic, &since); err != nil {
			return nil, err
		}
		topics = append(topics, topic)
	}
	return topics, rows.Err()
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

// observeVersion takes in the version of the settings that a read of messages has brought.
func (c *core) observeVersion(version int64) {
	if version == c.control.version {
		c.control.checkedAt = time.Now()
		return
	}
	c.control.checkedAt = time.Time{} // read the settings immediately
	c.pace.now()
}
