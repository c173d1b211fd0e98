package dashboard

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postbox-go/watermill-postbox/admin"
)

// request is a request of a user whose rights are known.
type request struct {
	*http.Request
	access Access
	// query is that of the address. What an action is about stands there, and what the user wrote
	// in the form.
	query url.Values
}

// mistakeError is one in what a user wrote into a form or an address.
type mistakeError struct{ error }

func badf(format string, args ...any) error { return mistakeError{fmt.Errorf(format, args...)} }

// name reads a topic, a key or an id in the notation.
func (q *request) name(field string) string { return unescaped(q.query.Get(field)) }

// id reads the id of a message or a dead letter.
func (q *request) id() (int64, error) {
	id, err := strconv.ParseInt(q.query.Get("id"), 10, 64)
	if err != nil || id < 0 {
		return 0, badf("the address has no id that is a number")
	}
	return id, nil
}

// Fields of addresses that name an outbox, a queue, or the consumer of an inbox.
const (
	outboxField = "outbox"
	queueField  = "queue"
	inboxField  = "inbox"
)

// target reads the outbox, the queue or the inbox that the address names.
func (q *request) target() (admin.Target, error) {
	target, ok := q.optionalTarget()
	if !ok {
		return admin.Target{}, badf("the address names no outbox, no queue and no inbox")
	}
	return target, nil
}

// checkTarget refuses an address that names several targets, or one in a form that
// [request.optionalTarget] does not read. Otherwise a page would show, and an action change, more
// than the user wrote, or something else.
func (q *request) checkTarget() error {
	named := 0
	for _, field := range []string{outboxField, queueField, inboxField} {
		named += len(q.query[field])
	}
	for _, value := range q.query[targetField] {
		if value == "" { // the choice "all"
			continue
		}
		if _, chosen := readTargetOption(value); !chosen {
			return badf("%s: %.60q names nothing: write outbox:NAME, queue:NAME or inbox:CONSUMER", targetField, value)
		}
		named++
	}
	if named > 1 {
		return badf("the address names several outboxes, queues or inboxes: name one")
	}
	return nil
}

// checkFields refuses an address with a field that the route does not know, such as a condition
// with a typing error: the page would show more than the user has asked for.
func (q *request) checkFields(r route) error {
	if r.checksItself {
		return nil
	}
	var mistakes []error
	for field, values := range q.query {
		switch known := slices.Contains(r.fields, field); {
		case slices.Contains([]string{targetField, outboxField, queueField, inboxField}, field):
		case field == noticeField && areNotices(values):
		case known && len(values) > 1:
			mistakes = append(mistakes, badf("%s: it has several values: write one", field))
		case !known && len(r.fields) == 0:
			mistakes = append(mistakes, badf("%.60q is no field of this address", field))
		case !known:
			mistakes = append(mistakes, badf("%.60q is no field of this address, which may have %s", field, strings.Join(r.fields, ", ")))
		}
	}
	return errors.Join(mistakes...)
}

func (q *request) optionalTarget() (admin.Target, bool) {
	// The list in a form has one field for all.
	if target, chosen := readTargetOption(q.query.Get(targetField)); chosen {
		return target, true
	}
	for _, kind := range []string{outboxField, queueField, inboxField} {
		if q.query.Has(kind) {
			return targetOf(kind, q.name(kind)), true
		}
	}
	return admin.Target{}, false
}

// targetField is the field of a form in which a user chooses among outboxes, queues and inboxes.
const targetField = "in"

func targetOf(kind, name string) admin.Target {
	switch kind {
	case inboxField:
		return admin.Inbox(name)
	case queueField:
		return admin.Queue(name)
	default:
		return admin.Outbox(name)
	}
}

// targetOption is the value of [targetField] that stands for a target.
func targetOption(target admin.Target) string {
	return target.Kind + ":" + escaped(target.Name)
}

// readTargetOption reads such a value.
func readTargetOption(value string) (target admin.Target, chosen bool) {
	kind, name, chosen := strings.Cut(value, ":")
	if !chosen || !slices.Contains([]string{outboxField, queueField, inboxField}, kind) {
		return admin.Target{}, false
	}
	return targetOf(kind, unescaped(name)), true
}

// Layouts of times in forms and addresses. Browsers send the first two, and the last one is exact.
var timeLayouts = []string{"2006-01-02T15:04", "2006-01-02T15:04:05", time.RFC3339Nano}

// moment reads a time, in UTC unless it says otherwise. Without one it is zero.
func moment(name, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range timeLayouts {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, badf("%s: %q is not a time such as 2026-11-30T15:04", name, text)
}

// count reads a number that may be missing.
func count(name, text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, badf("%s: %q is not a number", name, text)
	}
	return n, nil
}

// reason reads why an operator does something.
func (q *request) reason() (string, error) {
	reason := strings.TrimSpace(q.PostFormValue("reason"))
	if reason == "" {
		return "", mistakeError{errors.New("the reason is missing: write why, it is kept with the message")}
	}
	return reason, nil
}

// link is the address of a page, relative to any other page.
type link struct {
	page  string
	query url.Values
}

// to returns an address. The fields come in pairs of a name and a value, which is written in the
// notation; an empty one is left out.
func to(page string, fields ...string) link {
	query := url.Values{}
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i+1] != "" {
			query.Set(fields[i], escaped(fields[i+1]))
		}
	}
	return link{page, query}
}

// toTarget is the address of a page about an outbox, a queue or an inbox; an outbox or a queue may
// have an empty name.
func toTarget(page string, target admin.Target, fields ...string) link {
	l := to(page, fields...)
	l.query.Set(target.Kind, escaped(target.Name))
	return l
}

// toOverviewOf is the address of the page that shows an outbox, a queue or an inbox as a whole.
func toOverviewOf(target admin.Target, fields ...string) link {
	if target.Kind == inboxField {
		return toTarget(inboxPage, target, fields...)
	}
	return toTarget(queuePage, target, fields...)
}

// changed is the page about the thing that an action changes, with its name: that of the message or
// the dead letter which the address has, or that of the outbox, the queue or the inbox. An action
// on a key or a topic leads to the page of these. It is the overview if the address names nothing.
func (q *request) changed() (l link, name string) {
	target, hasTarget := q.optionalTarget()
	id, err := q.id()
	switch {
	case err == nil && hasTarget:
		return toMessage(target, id), "Message " + idText(id)
	case err == nil:
		return to(letterPage, "id", idText(id)), "Dead letter " + idText(id)
	case hasTarget && slices.Contains([]string{"pause-key", "resume-key", "pause-topic", "resume-topic"}, path.Base(q.URL.Path)):
		return toTarget(keysPage, target), "Keys and topics"
	case hasTarget:
		return toOverviewOf(target), kindOf(target) + " " + target.Name
	default:
		return to(overviewPage), "Overview"
	}
}

// Page is the page, empty for no address.
func (l link) Page() string { return l.page }

// with returns the address with another value of a field.
func (l link) with(field, value string) link {
	query := url.Values{}
	for name, values := range l.query {
		query[name] = values
	}
	query.Set(field, value)
	return link{l.page, query}
}

// without returns a query without a field.
func without(query url.Values, field string) url.Values {
	query = maps.Clone(query)
	query.Del(field)
	return query
}

// String writes the address.
func (l link) String() string {
	page := l.page
	if page == overviewPage {
		page = "./"
	}
	if len(l.query) == 0 {
		return page
	}
	return page + "?" + l.query.Encode()
}
