package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// Pause stops an outbox or a queue, in all processes and also in those that start later, until [Admin.Resume]. Messages can still
// be written to it. Processes notice the pause within a second: running handlers end, and no further message is begun. No
// attempt is counted, and nothing is lost, whatever crashes.
//
// A second call changes nothing. Pause fails with [ErrNotFound], and lists the existing names, if there is no outbox or queue
// of this name. The same holds for the other methods that take a [Target].
func (a *Admin) Pause(ctx context.Context, target Target) error {
	if err := a.operator.Pause(ctx, target.spool); err != nil {
		return failed(err)
	}
	a.say("An operator paused an outbox or a queue", target, nil)
	return nil
}

// Resume ends a pause. Processes notice within a second. Keys that [Admin.PauseKey] has paused stay paused.
func (a *Admin) Resume(ctx context.Context, target Target) error {
	if err := a.operator.Resume(ctx, target.spool); err != nil {
		return failed(err)
	}
	a.say("An operator resumed an outbox or a queue", target, nil)
	return nil
}

// PauseKey stops the messages with one ordering key; other messages go on. While any key is paused, each read of
// the outbox or queue costs a little more.
func (a *Admin) PauseKey(ctx context.Context, target Target, key string) error {
	if key == "" {
		return fmt.Errorf("admin: pause a key of %s: %w", target, invalid(errNoKey))
	}
	if err := a.operator.PauseKey(ctx, target.spool, key); err != nil {
		return failed(err)
	}
	a.say("An operator paused a key", target, watermill.LogFields{"key": key})
	return nil
}

// ResumeKey ends the pause of a key, if there is one, and gives a parked message of the key all its attempts again,
// from now on: a queue with queue.ParkHead goes on with the key. A crash may interrupt it between the two steps, so it can be
// called again.
func (a *Admin) ResumeKey(ctx context.Context, target Target, key string) error {
	if key == "" {
		return fmt.Errorf("admin: resume a key of %s: %w", target, invalid(errNoKey))
	}
	if err := a.operator.ResumeKey(ctx, target.spool, key); err != nil {
		return failed(err)
	}
	a.say("An operator resumed a key", target, watermill.LogFields{"key": key})
	return nil
}

var errNoKey = errors.New("the key is empty: give an ordering key; for a message without one, use RunNow, Reschedule or Bury with its id")

// Paused is an ordering key whose messages are not handled, or a topic of an outbox whose messages
// are not published.
type Paused struct {
	// Key is set for a key, and Topic for a topic.
	Key, Topic string
	// Since is when an operator paused it, by the database's clock.
	Since time.Time
}

// PausedKeys lists the paused keys. The key that was paused first comes first.
func (a *Admin) PausedKeys(ctx context.Context, target Target) ([]Paused, error) {
	found, err := a.operator.PausedKeys(ctx, target.spool)
	if err != nil {
		return nil, failed(err)
	}
	return found, nil
}

// say logs what an operator did.
func (a *Admin) say(what string, target Target, fields watermill.LogFields) {
	a.logger.Info(what, watermill.LogFields{"target": target.String()}.Add(fields))
}
