package health

import (
	"fmt"
	"time"
)

// Phase is a part of the life of a component.
type Phase int

const (
	// NotStarted means that Run or Subscribe was not called yet.
	NotStarted Phase = iota
	// Starting means that the component has not opened its tables yet. It may wait for the
	// database.
	Starting
	// Running means that it processes messages.
	Running
	// Stopping means that it was told to end, and waits for running handlers.
	Stopping
	// Stopped means that it has ended, as it was told to or with an error.
	Stopped
)

// State is what is known of an outbox or a queue in this process.
type State struct {
	// Name describes the component, such as `outbox "outbox"` or `queue "mail"`.
	Name  string
	Phase Phase
	// Turned is when its loop last turned, and Answered is when its database last answered; zero
	// for never.
	Turned, Answered time.Time
	// Err is the error with which it has stopped, or the last one of the database; nil after a
	// success.
	Err error
}

// Reporter is a component that reports its health. Forwarders, subscribers and batches are such
// components. A subscriber has a state for each queue.
type Reporter interface {
	Health() []State
}

// turnTimeout is longer than a turn of a loop can take. Postbox ends a turn after 30 s, but lib/pq
// goes on reading until TCP notices that the database's host has vanished, which takes up to a
// quarter of an hour.
const turnTimeout = 20 * time.Minute

// alive returns nil unless the component has ended with an error, or its loop has not turned for 20
// minutes.
func (s State) alive(now time.Time) error {
	switch {
	case s.Phase == Stopped && s.Err != nil:
		return fmt.Errorf("%s has stopped: %w", s.Name, s.Err)
	case s.Phase == Running && now.Sub(s.Turned) > turnTimeout:
		return fmt.Errorf("%s has not moved for %s", s.Name, now.Sub(s.Turned).Round(time.Second))
	default:
		return nil
	}
}

// ready returns nil if the component is running and its database has answered within the given
// time.
func (s State) ready(now time.Time, within time.Duration) error {
	if err := s.alive(now); err != nil {
		return err
	}
	switch {
	case s.Phase == NotStarted:
		return fmt.Errorf("%s has not been started", s.Name)
	case s.Phase == Stopping:
		return fmt.Errorf("%s is stopping", s.Name)
	case s.Phase == Stopped:
		return fmt.Errorf("%s has stopped", s.Name)
	case s.Phase == Starting && s.Err != nil:
		return fmt.Errorf("%s has not started yet: %w", s.Name, s.Err)
	case s.Phase == Starting:
		return fmt.Errorf("%s has not started yet", s.Name)
	}
	silent := now.Sub(s.Answered)
	switch {
	case s.Answered.IsZero() && s.Err != nil:
		return fmt.Errorf("the database of %s has not answered yet: %w", s.Name, s.Err)
	case s.Answered.IsZero():
		return fmt.Errorf("the database of %s has not answered yet", s.Name)
	case silent <= within:
		return nil
	case s.Err != nil:
		return fmt.Errorf("the database of %s has not answered for %s: %w", s.Name, silent.Round(time.Second), s.Err)
	default:
		return fmt.Errorf("the database of %s has not answered for %s", s.Name, silent.Round(time.Second))
	}
}
