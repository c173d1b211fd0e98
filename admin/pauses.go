package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// Pause stops an outbox or a queue, in all processes, also those that start later, until [Admin.Resume]. Messages go on
// being written to it. What is being handled ends, and nothing more is begun: processes notice within a second. No
// attempt is counted, and nothing is lost, whatever crashes.
//
// It can be called again, and then changes nothing. It fails with [ErrNotFound], and says what there is, where there is
// none of this name. The same goes for the other methods that take a [Target].
func (a *Admin) Pause(ctx context.Context, target Target) error {
	if err := a.operator.Pause(ctx, target.spool); err != nil {
		return failed(err)
	}
	a.say("Postbox is paused by an operator", target, nil)
	return nil
}

// Resume ends a pause. Processes notice within a second. Keys that are paused, by [Admin.PauseKey], stay so.
func (a *Admin) Resume(ctx context.Context, target Target) error {
	if err := a.operator.Resume(ctx, target.spool); err != nil {
		return failed(err)
	}
	a.say("Postbox is resumed by an operator", target, nil)
	return nil
}

// PauseKey stops the messages with an ordering key, as [Admin.Pause] does all of them; others go on. It costs each read of
// the outbox or queue a little as long as any key is paused.
func (a *Admin) PauseKey(ctx context.Context, target Target, key string) error {
	if key == "" {
		return fmt.Errorf("admin: pause a key of %s: %w", target, errNoKey)
	}
	if err := a.operator.PauseKey(ctx, target.spool, key); err != nil {
		return failed(err)
	}
	a.say("Postbox is told to pause a key", target, watermill.LogFields{"key": key})
	return nil
}

// ResumeKey ends the pause of a key, if there is one, and gives a message of it that is parked all its attempts again,
// from now on: a queue with ParkHead goes on with the key. A crash in between may leave that undone: it can be
// called again.
func (a *Admin) ResumeKey(ctx context.Context, target Target, key string) error {
	if key == "" {
		return fmt.Errorf("admin: resume a key of %s: %w", target, errNoKey)
	}
	if err := a.operator.ResumeKey(ctx, target.spool, key); err != nil {
		return failed(err)
	}
	a.say("Postbox is told to resume a key", target, watermill.LogFields{"key": key})
	return nil
}

var errNoKey = errors.New("the key is empty: messages without an ordering key can be named by their ids only, see RunNow")

// PausedKey is an ordering key of which nothing is handled.
type PausedKey struct {
	Key string
	// Since is when an operator paused it, by the database's clock.
	Since time.Time
}

// PausedKeys lists the keys that are paused, those that have been for the longest time first.
func (a *Admin) PausedKeys(ctx context.Context, target Target) ([]PausedKey, error) {
	found, err := a.operator.PausedKeys(ctx, target.spool)
	if err != nil {
		return nil, failed(err)
	}
	keys := make([]PausedKey, len(found))
	for i, key := range found {
		keys[i] = PausedKey(key)
	}
	return keys, nil
}

// say logs what an operator did.
func (a *Admin) say(what string, target Target, fields watermill.LogFields) {
	a.logger.Info(what, watermill.LogFields{"target": target.String()}.Add(fields))
}
