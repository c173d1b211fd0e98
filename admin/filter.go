package admin

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/postbox-go/watermill-postbox/admin/internal/operatorsql"
)

// maxLimit is the largest number of entries on a page of a list.
const maxLimit = 1000

// defaultLimit is the number of entries on a page unless the filter sets another one.
const defaultLimit = 100

// resolutions are the values of [Filter.Resolved].
var resolutions = map[string]operatorsql.Resolved{"": operatorsql.ResolvedNo, "no": operatorsql.ResolvedNo, "yes": operatorsql.ResolvedYes, "any": operatorsql.ResolvedAny}

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
	// part of the span, and Until is not. For [Admin.Pause] Until is its end.
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

	// After is the cursor that the list has returned for its next page, or the [Progress.Cursor] of
	// a replay that goes on. Other actions have none.
	After string
	// NewestFirst lists dead letters from the newest one on. Other lists have one order each.
	NewestFirst bool
	// Limit is the largest number of entries on a page: 100 by default, and an error above 1000.
	// For an action it is the largest number of things to change, without a maximum,
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
	stuckKeys       = list{"stuck keys", "", "", []string{"target", "id"}}
	pauses          = list{"what is paused or resumed", "", "", []string{"target", "key", "topic"}}
)

// field is a field of a filter: what mistakes call it, what it is called in a description, which is
// "" for one that descriptions leave out, and where its value is.
type field struct {
	name, said string
	value      any
}

// fields are all fields apart from After and All, in the order of a description.
func (f *Filter) fields(l list) []field {
	in := ""
	if l.of == deadLetters.of { // that of messages stands beside the description
		in = "in"
	}
	return []field{
		{"target", in, &f.Target},
		{"id", "", &f.ID},
		{"unique key", "", &f.UniqueKey},
		{"status", "status", (*string)(&f.Status)},
		{"topic", "topic", &f.Topic},
		{"consumer", "consumer", &f.Consumer},
		{"key", "key", &f.Key},
		{"message id", "message id", &f.MessageID},
		{"error text", "error with", &f.ErrorText},
		{"shape", "error like", &f.Shape},
		{"cause", "cause", &f.Cause},
		{"resolved", "", &f.Resolved},
		{"min attempts", "attempts from", &f.MinAttempts},
		{"max attempts", "attempts to", &f.MaxAttempts},
		{"limit", "limit", &f.Limit},
		{"from", l.said + " from", &f.From},
		{"until", l.said + " before", &f.Until},
		{"actor", "", &f.Actor},
		{"action", "", &f.Action},
		{"older than", "", &f.OlderThan},
	}
}

func (one field) isSet() bool {
	if at, is := one.value.(*time.Time); is { // a zero time may have a location
		return !at.IsZero()
	}
	return !reflect.ValueOf(one.value).Elem().IsZero()
}

// conditions names the fields that are set, apart from After and Limit.
func (f Filter) conditions() (set []string) {
	for _, one := range f.fields(list{}) {
		if one.isSet() && one.name != "limit" {
			set = append(set, one.name)
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
	if f.NewestFirst && l.of != deadLetters.of {
		problems = append(problems, fmt.Errorf("newest first: it orders dead letters, and no %s: leave it out", l.of))
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
	if f.NewestFirst {
		problems = append(problems, errors.New("newest first: it is for lists, and an action begins with the oldest: leave it out"))
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
	if f.After != "" || f.NewestFirst || f.Limit != 0 || len(f.conditions()) > 0 {
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

// resolvedWords say which dead letters an action takes, in the order of [operatorsql.Resolved].
var resolvedWords = []string{"not resolved", "resolved", "resolved or not"}

// longest is how many characters of a text a description has.
const longest = 300

// describe describes the filter of an action for people, as the audit log shows it. It names each
// field that is set, apart from the target of messages.
func (f Filter) describe(l list) string {
	var parts []string
	if l.of == deadLetters.of {
		parts = append(parts, resolvedWords[resolutions[f.Resolved]])
	}
	for _, one := range f.fields(l) {
		if one.said != "" && one.isSet() {
			parts = append(parts, one.said+" "+one.text())
		}
	}
	if len(parts) == 0 {
		return "all"
	}
	return strings.Join(parts, ", ")
}

func (one field) text() string {
	switch value := one.value.(type) {
	case *string:
		return fmt.Sprintf("%.*q", longest, *value)
	case *time.Time:
		return value.UTC().Format(time.RFC3339Nano)
	default:
		return fmt.Sprint(reflect.ValueOf(value).Elem())
	}
}

var errNoDescription = errors.New("it is not the description of a filter, or not all of it")

// mostDescribed is how long a description may be that was kept whole.
const mostDescribed = 4000

// described reads what describe has written.
func (l list) described(text string) (f Filter, err error) {
	if text == "" || len(text) > mostDescribed {
		return f, errNoDescription
	}
	if l.of == deadLetters.of {
		word, rest, _ := strings.Cut(text, ", ")
		i := slices.Index(resolvedWords, word)
		if i < 0 {
			return f, errNoDescription
		}
		f.Resolved, text = []string{"", "yes", "any"}[i], rest
	}
	for _, one := range f.fields(l) {
		if rest, is := strings.CutPrefix(text, one.said+" "); is && err == nil {
			text, err = one.read(rest)
		}
	}
	if text != "" && text != "all" {
		err = errNoDescription
	}
	return f, err
}

// read sets the field to the value with which a text begins, and returns the rest.
func (one field) read(text string) (rest string, err error) {
	word, _, _ := strings.Cut(text, ", ")
	switch value := one.value.(type) {
	case *Target:
		value.Kind, text, _ = strings.Cut(text, " ")
		return field{value: &value.Name}.read(text)
	case *int:
		*value, err = strconv.Atoi(word)
	case *time.Time:
		*value, err = time.Parse(time.RFC3339Nano, word)
	case *string:
		if word, err = strconv.QuotedPrefix(text); err == nil {
			*value, err = strconv.Unquote(word)
		}
		if utf8.RuneCountInString(*value) >= longest {
			err = errNoDescription
		}
	}
	return strings.TrimPrefix(text[len(word):], ", "), err
}

// ofLetters is the filter as statements about dead letters take it.
func (f Filter) ofLetters() operatorsql.DeadLetterFilter {
	return operatorsql.DeadLetterFilter{
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
