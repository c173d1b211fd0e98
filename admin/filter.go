package admin

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// MaxLimit is the largest number of entries on a page of a list.
const MaxLimit = 1000

// defaultLimit is the number of entries on a page unless the filter sets another one.
const defaultLimit = 100

// resolutions are the values of [Filter.Resolved].
var resolutions = map[string]dialect.Resolved{"": dialect.ResolvedNo, "no": dialect.ResolvedNo, "yes": dialect.ResolvedYes, "any": dialect.ResolvedAny}

// Filter chooses what a list shows, or what an action changes: messages, dead letters, entries of
// the audit log, receipts, keys. It chooses what matches all fields that are set. A field that has
// no meaning there is an [ErrInvalid].
type Filter struct {
	// Target is the outbox, the queue or the inbox. Lists of messages, pauses and actions on
	// messages need one. For dead letters the zero value is for all; those of an inbox are chosen
	// by Consumer.
	Target Target
	// ID is the one message of Target, or the one dead letter, that an action changes. It goes with
	// no other condition.
	ID int64
	// UniqueKey is that of the one message of Target and Topic that waits under it: see
	// [Admin.Message].
	UniqueKey string
	// Status is that of messages: one of the pending ones, [Done] for the history, and "" for all
	// that are pending.
	Status Status
	// Topic, Key and MessageID must match the whole value.
	Topic, Key, MessageID string
	// Consumer is the inbox's consumer that could not handle the message of a dead letter, or whose
	// receipt it is.
	Consumer string
	// ErrorText is a part of the last error of a message or a dead letter, with the same capitals.
	ErrorText string
	// Shape chooses the dead letters of a group: see [Group.Shape] and [DeadLetter.Shape].
	Shape string
	// Cause chooses dead letters by [DeadLetter.Cause].
	Cause string
	// Resolved chooses dead letters by whether an operator has resolved them: "" or "no" is for
	// those that are not resolved, "yes" for those that are, and "any" for both.
	Resolved string
	// MinAttempts and MaxAttempts bound the number of attempts that failed; both belong to the
	// range, and 0 is no bound. Messages have no upper one.
	MinAttempts, MaxAttempts int
	// From and Until bound a time, by the database's clock: when a pending message was written,
	// when one of the history was done, when a dead letter died, or when an operator acted. From is
	// part of the span, and Until is not.
	From, Until time.Time
	// Actor and Action are those of an [AuditEntry].
	Actor, Action string
	// OlderThan chooses missing receipts of messages that were sent longer ago than this, overdue
	// or not. By default the time that the producer has set decides.
	OlderThan time.Duration
	// All is for an action on all that there is: without any condition it changes nothing and
	// returns an error. Lists ignore it. Target alone is a condition for dead letters, and Resolved
	// is none unless it is "yes".
	All bool

	// After is the cursor that the list has returned for its next page.
	After string
	// Limit is the largest number of entries on a page: 100 by default, and an error above
	// [MaxLimit]. For an action it is the largest number of things to change, without a maximum,
	// and 0 for all.
	Limit int
}

// list is what a filter is for.
type list struct {
	of     string   // what its entries are called
	span   string   // what From and Until bound
	said   string   // the same in a description
	fields []string // by which its entries are chosen
}

var (
	pendingMessages = list{"pending messages", "created", "written", []string{"target", "status", "topic", "key", "message id", "error text", "min attempts", "from", "until"}}
	doneMessages    = list{"messages of the history", "done", "done", []string{"target", "status", "topic", "key", "message id", "from", "until"}}
	deadLetters     = list{"dead letters", "died", "died", []string{"target", "topic", "key", "message id", "consumer", "error text", "shape", "cause", "resolved", "min attempts", "max attempts", "from", "until"}}
	auditLog        = list{"entries of the audit log", "time", "", []string{"target", "from", "until", "actor", "action"}}
	receipts        = list{"receipts", "", "", []string{"topic", "message id", "consumer", "older than"}}
	stuckKeys       = list{"stuck keys", "", "", []string{"target"}}
	pauses          = list{"what is paused or resumed", "", "", []string{"target", "key", "topic"}}
)

// conditions names the fields that are set, apart from After and Limit.
func (f Filter) conditions() (set []string) {
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"target", f.Target != (Target{})},
		{"id", f.ID != 0},
		{"unique key", f.UniqueKey != ""},
		{"status", f.Status != ""},
		{"topic", f.Topic != ""},
		{"key", f.Key != ""},
		{"message id", f.MessageID != ""},
		{"consumer", f.Consumer != ""},
		{"error text", f.ErrorText != ""},
		{"shape", f.Shape != ""},
		{"cause", f.Cause != ""},
		{"resolved", f.Resolved != ""},
		{"min attempts", f.MinAttempts != 0},
		{"max attempts", f.MaxAttempts != 0},
		{"from", !f.From.IsZero()},
		{"until", !f.Until.IsZero()},
		{"actor", f.Actor != ""},
		{"action", f.Action != ""},
		{"older than", f.OlderThan != 0},
	} {
		if field.set {
			set = append(set, field.name)
		}
	}
	return set
}

// mistakes returns all mistakes in a filter for a list, apart from After and Limit.
func (f Filter) mistakes(l list) error {
	var problems []error
	for _, field := range f.conditions() {
		if !slices.Contains(l.fields, field) {
			problems = append(problems, fmt.Errorf("%s: it does not choose %s: leave it out", field, l.of))
		}
	}
	if _, known := resolutions[f.Resolved]; !known {
		problems = append(problems, fmt.Errorf("resolved: %.60q is not one of \"no\", \"yes\" and \"any\"", f.Resolved))
	}
	problems = append(problems, checkName("topic", f.Topic), checkName("consumer", f.Consumer), checkText("error text", f.ErrorText), checkText("shape", f.Shape),
		checkText("actor", f.Actor), checkSpan(l.span, f.From, f.Until))
	switch ranged := slices.Contains(l.fields, "max attempts"); {
	case !ranged && f.MinAttempts < 0:
		problems = append(problems, fmt.Errorf("attempts: %d is negative: use a number from 0 on", f.MinAttempts))
	case f.MinAttempts < 0, f.MaxAttempts < 0, f.MaxAttempts > 0 && f.MinAttempts > f.MaxAttempts:
		problems = append(problems, fmt.Errorf("attempts: from %d to %d is no range: use numbers from 0 on, the first one not above the second, or 0 for no bound",
			f.MinAttempts, f.MaxAttempts))
	}
	if f.OlderThan < 0 {
		problems = append(problems, fmt.Errorf("older than: %s is negative: use a positive duration, or 0 for any age", f.OlderThan))
	}
	problems = append(problems, checkAttempts(f.MinAttempts), checkAttempts(f.MaxAttempts), checkCause(f.Cause), checkAction(f.Action))
	return errors.Join(problems...)
}

// listed returns the limit of a page of a list, and all mistakes in the filter.
func (f Filter) listed(l list) (limit int, err error) {
	limit, err = pageLimit(f.Limit)
	return limit, errors.Join(f.mistakes(l), err)
}

// acting returns all mistakes in a filter that chooses what an action changes.
func (f Filter) acting(l list) error {
	problems := []error{f.mistakes(l), notNegative(f.Limit)}
	if f.After != "" {
		problems = append(problems, errors.New("after: it is for lists: leave it out, and call again to go on"))
	}
	narrow := slices.ContainsFunc(f.conditions(), func(field string) bool { return field != "target" && (field != "resolved" || f.Resolved == "yes") })
	if l.of == deadLetters.of {
		narrow = narrow || f.Target != (Target{})
	}
	if !narrow && !f.All {
		problems = append(problems, errors.New("nothing is chosen: set a condition, or All for all of them"))
	}
	return errors.Join(problems...)
}

// alone returns an error if a filter with an ID has another condition.
func (f Filter) alone(l list) error {
	f.ID = 0
	if l.of != deadLetters.of {
		f.Target = Target{}
	}
	if f.After != "" || f.Limit != 0 || len(f.conditions()) > 0 {
		return invalid(fmt.Errorf("id: it chooses one of the %s: leave the other conditions out", l.of))
	}
	return nil
}

// notNegative checks the limit of an action.
func notNegative(limit int) error {
	if limit < 0 {
		return fmt.Errorf("limit: %d is negative: use a positive number, or 0 for all that match", limit)
	}
	return nil
}

// checkAttempts refuses a number of attempts that no column holds, which some databases would
// refuse.
func checkAttempts(n int) error {
	if n > math.MaxInt32 {
		return fmt.Errorf("attempts: %d is above %d: use a smaller number", n, math.MaxInt32)
	}
	return nil
}

// checkText refuses a value of a field that nothing stored has, and that some databases do not
// take.
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

// checkName is [checkText] for a name, such as that of a topic. MySQL and MariaDB ignore spaces at
// the end of the names that they compare, so such a name would choose what has another one.
func checkName(field, name string) error {
	if strings.HasSuffix(name, " ") {
		return fmt.Errorf("%s: %.60q ends with a space, which some databases ignore when they compare names: leave the space out, or choose by something else", field, name)
	}
	return checkText(field, name)
}

// describe describes the filter of an action for people, as the audit log shows it. It names each
// field that is set, apart from the target of messages.
func (f Filter) describe(l list) string {
	var parts []string
	if l.of == deadLetters.of {
		parts = append(parts, map[string]string{"": "not resolved", "no": "not resolved", "yes": "resolved", "any": "resolved or not"}[f.Resolved])
		if f.Target != (Target{}) {
			parts = append(parts, "in "+f.Target.String())
		}
	}
	for _, field := range []struct{ name, value string }{
		{"status", string(f.Status)},
		{"topic", f.Topic},
		{"consumer", f.Consumer},
		{"key", f.Key},
		{"message id", f.MessageID},
		{"error with", f.ErrorText},
		{"error like", f.Shape},
		{"cause", f.Cause},
	} {
		if field.value != "" {
			parts = append(parts, fmt.Sprintf("%s %.300q", field.name, field.value))
		}
	}
	for _, field := range []struct {
		name  string
		value int
	}{{"attempts from", f.MinAttempts}, {"attempts to", f.MaxAttempts}, {"limit", f.Limit}} {
		if field.value != 0 {
			parts = append(parts, fmt.Sprintf("%s %d", field.name, field.value))
		}
	}
	for _, field := range []struct {
		name  string
		value time.Time
	}{{l.said + " from", f.From}, {l.said + " before", f.Until}} {
		if !field.value.IsZero() {
			parts = append(parts, field.name+" "+field.value.UTC().Format(time.RFC3339Nano))
		}
	}
	if len(parts) == 0 {
		return "all"
	}
	return strings.Join(parts, ", ")
}

// ofLetters is the filter as statements about dead letters take it.
func (f Filter) ofLetters() dialect.DeadLetterFilter {
	return dialect.DeadLetterFilter{
		Shape: f.Shape, Topic: f.Topic, Consumer: f.Consumer, MessageID: f.MessageID,
		Spool: f.Target.stored(), Key: f.Key, ErrorText: f.ErrorText, Causes: numbersOf(f.Cause), MinAttempts: f.MinAttempts, MaxAttempts: f.MaxAttempts,
		DiedAfter: micros(f.From), DiedBefore: micros(f.Until), Resolved: resolutions[f.Resolved],
	}
}

// micros returns a time in microseconds, as the database stores it. 0 means no bound, so the
// beginning of 1970 becomes the microsecond before it. No letter is that old.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	if at := t.UnixMicro(); at != 0 {
		return at
	}
	return -1
}
