package admin

import (
	"errors"
	"fmt"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// MaxLimit is the largest number of entries that a call of [Admin.DeadLetters], [Admin.Messages] or [Admin.Done] returns.
const MaxLimit = 1000

// defaultLimit is the number of entries that they return unless the filter sets another one.
const defaultLimit = 100

// Resolved chooses dead letters by whether an operator has resolved them.
type Resolved int

const (
	// ResolvedNo chooses dead letters that no operator has resolved. It is the zero value.
	ResolvedNo = Resolved(dialect.ResolvedNo)
	// ResolvedYes chooses dead letters that an operator has resolved.
	ResolvedYes = Resolved(dialect.ResolvedYes)
	// ResolvedAny chooses both.
	ResolvedAny = Resolved(dialect.ResolvedAny)
)

// Filter chooses the dead letters that match all fields that are set. The zero value chooses all that no operator has
// resolved.
type Filter struct {
	// Topic is the topic of the message.
	Topic string
	// Consumer is the inbox's consumer that could not handle the message.
	Consumer string
	// MessageID is the whole id of the message.
	MessageID string
	// DiedAfter and DiedBefore bound the time of death: the first is part of the span, the second is not. They are
	// compared with the database's clock.
	DiedAfter, DiedBefore time.Time
	// Resolved chooses by whether an operator has resolved the letter. Defaults to those that are not resolved.
	Resolved Resolved

	// After chooses dead letters with higher ids, for the next page.
	After int64
	// Limit is the largest number of letters that [Admin.DeadLetters] returns: 100 by default, and an error above 1000. For
	// [Admin.RequeueAll] it is the largest number to requeue, without a maximum, and 0 for all.
	Limit int
}

// Validate returns all mistakes in the filter.
func (f Filter) Validate() error {
	var problems []error
	if f.Limit < 0 {
		problems = append(problems, fmt.Errorf("limit: %d is negative", f.Limit))
	}
	if f.Resolved < ResolvedNo || f.Resolved > ResolvedAny {
		problems = append(problems, fmt.Errorf("resolved: %d is not one of ResolvedNo, ResolvedYes and ResolvedAny", f.Resolved))
	}
	return errors.Join(problems...)
}

func (f Filter) requeueable() error {
	if f.Resolved != ResolvedNo {
		return fmt.Errorf("resolved: %w: use ResolvedNo, since only a letter that is not resolved can be requeued", ErrResolved)
	}
	return nil
}

// listable refuses a limit that is too large. Otherwise the result would be a short page that looks like the last one.
func (f Filter) listable() error {
	if f.Limit > MaxLimit {
		return fmt.Errorf("limit: %d is above %d", f.Limit, MaxLimit)
	}
	return nil
}

// page bounds what is chosen.
func (f Filter) page() dialect.DeadLetterFilter {
	chosen := f.chosen()
	chosen.Limit = f.Limit
	if f.Limit == 0 {
		chosen.Limit = defaultLimit
	}
	return chosen
}

func (f Filter) chosen() dialect.DeadLetterFilter {
	return dialect.DeadLetterFilter{
		After: f.After, Topic: f.Topic, Consumer: f.Consumer, MessageID: f.MessageID,
		DiedAfter: micros(f.DiedAfter), DiedBefore: micros(f.DiedBefore), Resolved: dialect.Resolved(f.Resolved),
	}
}

// micros returns a time in microseconds, as the database stores it. 0 means no bound, so the beginning of 1970 becomes the microsecond before it. No letter is that old.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	if at := t.UnixMicro(); at != 0 {
		return at
	}
	return -1
}
