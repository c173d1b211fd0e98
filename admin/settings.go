package admin

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Settings are settings that operators store for an outbox or a queue, for all processes. They
// override the configuration of the processes. A field that is zero leaves the setting to each
// process.
type Settings struct {
	// PageSize is the number of messages to read at once, up to 10,000. Up to three times as many
	// are held in memory. For a queue of batches it is at least the size of a batch.
	PageSize int
	// Concurrency is the number of handlers, or calls to the broker, at a time in each process, up
	// to 10,000.
	Concurrency int
	// PollMax is the longest pause between two polls that find nothing, from 1 ms to 1 h. A lower
	// bound above it is lowered.
	PollMax time.Duration
	// Attempts is how often a message may fail before it is dead or parked; -1 never gives up.
	// Failures from before the change count, too.
	Attempts int
	// PerSecond and MaxConcurrent limit the whole outbox or queue, over all processes: see
	// [postbox.Limits.Total]. A negative value sets no limit, whatever is configured.
	PerSecond     float64
	MaxConcurrent int
	// History is how long messages that are done are kept, at least 1 s. A negative value turns it
	// off and deletes the kept messages.
	History time.Duration
	// Retention is how long dead letters are kept, at least 1 s. A negative value keeps them for
	// ever. Their failure histories are deleted after the retention that processes are configured
	// with.
	Retention time.Duration
}

// check returns all mistakes in the settings.
func (s Settings) check() error {
	var problems []error
	for _, count := range []struct {
		name    string
		n, most int
	}{{"PageSize", s.PageSize, spool.MaxPageSize}, {"Concurrency", s.Concurrency, spool.MaxConcurrency}} {
		if count.n < 0 || count.n > count.most {
			problems = append(problems, fmt.Errorf("%s: %d is not between 1 and %d: use a value in this range, or 0 for the configured value of each process",
				count.name, count.n, count.most))
		}
	}
	if s.PollMax != 0 && (s.PollMax < spool.MinPollMax || s.PollMax > spool.MaxPollMax) {
		problems = append(problems, fmt.Errorf("PollMax: %s is not between %s and %s: use a value in this range, or 0 for the configured value of each process",
			s.PollMax, spool.MinPollMax, spool.MaxPollMax))
	}
	if s.Attempts < -1 {
		problems = append(problems, fmt.Errorf("Attempts: %d is negative: use -1 to never give up", s.Attempts))
	}
	if !(s.PerSecond < 0) || math.IsInf(s.PerSecond, -1) { // NaN is not
		problems = append(problems, spool.ValidRate(s.PerSecond))
	}
	problems = append(problems, spool.ValidCalls("MaxConcurrent", max(s.MaxConcurrent, 0)))
	for _, span := range []struct {
		name, negative string
		d              time.Duration
	}{{"History", "to keep none", s.History}, {"Retention", "to keep them for ever", s.Retention}} {
		if span.d > 0 && span.d < spool.MinKept {
			problems = append(problems, fmt.Errorf("%s: %s is less than a second: give it a unit, such as 24 * time.Hour, or a negative value %s",
				span.name, span.d, span.negative))
		}
	}
	return errors.Join(problems...)
}

// validFor returns all mistakes in settings for a target. For an inbox, only History has an effect.
func (s Settings) validFor(target Target) error {
	err := s.check()
	if target.Kind == spool.KindInbox && s != (Settings{History: s.History}) {
		return errors.Join(err, fmt.Errorf("%s: it has no setting but History: leave out the others, which are for outboxes and queues", target))
	}
	return err
}

var errNoChange = errors.New("the function is nil: give one that changes the stored settings")

// ChangeSettings changes the stored settings of an outbox or a queue, and returns what is stored
// then. The function gets the stored settings, and changes those that it wants to. No other
// operator can change any between, so two who change different settings at once both have what they
// asked for. If the function returns an error, nothing changes, and ChangeSettings returns an error
// that wraps it.
//
// Processes notice within a second, inboxes within 30, and apply the settings from the next message
// on. Additional handlers start at once; a lower number takes effect as handlers end. Settings with
// a mistake are [ErrInvalid], and so are others than History for an inbox.
//
// The function runs in a transaction that has locked the settings, so it must be quick, and must
// not use the Admin. After a conflict in the database it is called again.
func (a *Admin) ChangeSettings(ctx context.Context, target Target, change func(stored *Settings) error) (Settings, error) {
	if change == nil {
		return Settings{}, fmt.Errorf("admin: set %s: %w", target, invalid(errNoChange))
	}
	var settings Settings
	err := a.operator.Set(ctx, target.stored(), func(stored *spool.Settings) error {
		settings = Settings(*stored)
		if err := change(&settings); err != nil {
			return err
		}
		*stored = spool.Settings(settings)
		if err := settings.validFor(target); err != nil {
			return invalid(err)
		}
		return nil
	})
	if err != nil {
		return Settings{}, failed(err)
	}
	a.say("An operator stored new settings", target, watermill.LogFields{"settings": fmt.Sprintf("%+v", settings)})
	return settings, nil
}
