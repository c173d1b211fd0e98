package admin

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// MaxLimit is the largest number of entries that a call of [Admin.DeadLetters], [Admin.Messages] or [Admin.Done] returns.
const MaxLimit = 1000

// defaultLimit is the number of entries that they return unless the filter sets another one.
const defaultLimit = 100

// resolutions are the values of [Filter.Resolved].
var resolutions = map[string]dialect.Resolved{"": dialect.ResolvedNo, "yes": dialect.ResolvedYes, "any": dialect.ResolvedAny}

// Filter chooses the dead letters that match all fields that are set. The zero value chooses all that no operator has
// resolved.
type Filter struct {
	// Topic is the topic of the message.
	Topic string
	// Consumer is the inbox's consumer that could not handle the message.
	Consumer string
	// Target is the outbox or the queue that the message was in. The zero value is for all, and for the letters of inboxes. To choose the letters of
	// an inbox, set Consumer.
	Target Target
	// MessageID is the whole id of the message.
	MessageID string
	// Key is the ordering key.
	Key string
	// ErrorText is a part of the error of the last attempt, with the same capitals.
	ErrorText string
	// Shape chooses the letters of a group: those whose error has this shape, as [Group.Shape] and
	// [DeadLetter.Shape] have it.
	Shape string
	// Cause chooses by [DeadLetter.Cause].
	Cause string
	// MinAttempts and MaxAttempts bound the number of attempts that failed; both belong to the range, and 0 is no bound.
	MinAttempts, MaxAttempts int
	// DiedAfter and DiedBefore bound the time of death: the first is part of the span, the second is not. They are
	// compared with the database's clock.
	DiedAfter, DiedBefore time.Time
	// Resolved chooses by whether an operator has resolved the letter: "" is for those that are not
	// resolved, "yes" for those that are, and "any" for both.
	Resolved string

	// After chooses dead letters with higher ids, for the next page.
	After int64
	// Limit is the largest number of letters that [Admin.DeadLetters] returns: 100 by default, and an error above 1000. For
	// [Admin.RequeueAll], [Admin.ResolveAll] and [Admin.DeleteAll] it is the largest number to act on, without a maximum, and 0 for all.
	Limit int
}

// Validate returns all mistakes in the filter.
func (f Filter) Validate() error {
	var problems []error
	if f.Limit < 0 {
		problems = append(problems, fmt.Errorf("limit: %d is negative", f.Limit))
	}
	if _, known := resolutions[f.Resolved]; !known {
		problems = append(problems, fmt.Errorf("resolved: %.60q is not one of \"yes\", \"any\" and \"\", for those that are not resolved", f.Resolved))
	}
	if f.Target.IsInbox() {
		problems = append(problems, errors.New("target: to choose the letters of an inbox, set Consumer"))
	}
	problems = append(problems, f.Target.check(), checkName("topic", f.Topic), checkName("consumer", f.Consumer), checkText("error text", f.ErrorText), checkText("shape", f.Shape),
		checkSpan("died", f.DiedAfter, f.DiedBefore))
	if f.MinAttempts < 0 || f.MaxAttempts < 0 || (f.MaxAttempts > 0 && f.MinAttempts > f.MaxAttempts) {
		problems = append(problems, fmt.Errorf("attempts: from %d to %d is no range: use numbers from 0 on, the first one not above the second, or 0 for no bound",
			f.MinAttempts, f.MaxAttempts))
	}
	problems = append(problems, checkAttempts(f.MinAttempts), checkAttempts(f.MaxAttempts), checkCause(f.Cause))
	return errors.Join(problems...)
}

// checkAttempts refuses a number of attempts that no column holds, which some databases would refuse.
func checkAttempts(n int) error {
	if n > math.MaxInt32 {
		return fmt.Errorf("attempts: %d is above %d: use a smaller number", n, math.MaxInt32)
	}
	return nil
}

// checkText refuses a value of a field that nothing stored has, and that some databases do not take.
func checkText(field, text string) error {
	if !utf8.ValidString(text) || strings.Contains(text, "\x00") {
		return fmt.Errorf("%s: %.60q is not text: use UTF-8 without NUL", field, text)
	}
	return nil
}

// checkSpan refuses a span of time that ends before it begins.
func checkSpan(field string, from, before time.Time) error {
	if !from.IsZero() && !before.IsZero() && from.After(before) {
		return fmt.Errorf("%s: from %s to %s is no span of time: the second time is before the first",
			field, from.UTC().Format(time.RFC3339Nano), before.UTC().Format(time.RFC3339Nano))
	}
	return nil
}

// checkName is [checkText] for a name, such as that of a topic. MySQL and MariaDB ignore spaces at the end of the names that they compare, so such a name
// would choose what has another one.
func checkName(field, name string) error {
	if strings.HasSuffix(name, " ") {
		return fmt.Errorf("%s: %.60q ends with a space, which some databases ignore when they compare names: leave the space out, or choose by something else", field, name)
	}
	return checkText(field, name)
}

// String describes the filter for people, as the audit log shows it. It names each field that is set.
func (f Filter) String() string {
	parts := []string{map[string]string{"": "not resolved", "yes": "resolved", "any": "resolved or not"}[f.Resolved]}
	if f.Target != (Target{}) {
		parts = append(parts, "in "+f.Target.String())
	}
	for _, field := range []struct{ name, value string }{
		{"topic", f.Topic}, {"consumer", f.Consumer}, {"message id", f.MessageID}, {"key", f.Key}, {"error with", f.ErrorText}, {"error like", f.Shape}, {"cause", f.Cause},
	} {
		if field.value != "" {
			parts = append(parts, fmt.Sprintf("%s %.300q", field.name, field.value))
		}
	}
	for _, field := range []struct {
		name  string
		value int64
	}{{"attempts from", int64(f.MinAttempts)}, {"attempts to", int64(f.MaxAttempts)}, {"after id", f.After}, {"limit", int64(f.Limit)}} {
		if field.value != 0 {
			parts = append(parts, fmt.Sprintf("%s %d", field.name, field.value))
		}
	}
	for _, field := range []struct {
		name  string
		value time.Time
	}{{"died from", f.DiedAfter}, {"died before", f.DiedBefore}} {
		if !field.value.IsZero() {
			parts = append(parts, field.name+" "+field.value.UTC().Format(time.RFC3339Nano))
		}
	}
	return strings.Join(parts, ", ")
}

// open requires letters that are not resolved. The rest of the sentence says what is to be done with them.
func (f Filter) open(done string) error {
	if f.Resolved != "" {
		return fmt.Errorf("resolved: %w: leave it out, since only a letter that is not resolved can be %s", ErrResolved, done)
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
		Shape: f.Shape, After: f.After, Topic: f.Topic, Consumer: f.Consumer, MessageID: f.MessageID,
		Spool: f.Target.spool, Key: f.Key, ErrorText: f.ErrorText, Causes: numbersOf(f.Cause), MinAttempts: f.MinAttempts, MaxAttempts: f.MaxAttempts,
		DiedAfter: micros(f.DiedAfter), DiedBefore: micros(f.DiedBefore), Resolved: resolutions[f.Resolved],
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
