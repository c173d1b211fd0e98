package dashboard

import (
	"context"
	"net/url"

	"github.com/postbox-go/watermill-postbox/admin"
)

// filterForm has the fields of the form that chooses dead letters, as the user has filled them in.
type filterForm struct {
	Targets, Causes, Resolutions  []option
	Topic, Consumer, Key, Message string
	Error, Shape                  string
	After, Before, Least, Most    string
}

// The values of the field that chooses by resolution.
const (
	unresolved = ""
	resolved   = "yes"
	anyLetter  = "any"
)

var resolutionTexts = []option{
	{Value: unresolved, Text: "not resolved"}, {Value: resolved, Text: "resolved"}, {Value: anyLetter, Text: "all"},
}

var causeTexts = []option{
	{Value: "", Text: "any"},
	{Value: "attempts", Text: "attempts used up"},
	{Value: "permanent", Text: "permanent error"},
	{Value: "crash", Text: "crashed its process"},
	{Value: "unreadable", Text: "cannot be read"},
	{Value: "operator", Text: "buried by an operator"},
	{Value: "unknown", Text: "unknown"},
}

// filterFields are the fields of an address that choose dead letters.
var filterFields = []string{
	outboxField, queueField, "topic", "consumer", "key", "message", "error", "shape", "cause", "min-attempts", "max-attempts",
	"died-after", "died-before", "resolved",
}

// filterNames are what these fields, and [messageFields], mean, for people.
var filterNames = map[string]string{
	outboxField: "Outbox", queueField: "Queue", inboxField: "Inbox", "topic": "Topic", "consumer": "Consumer", "key": "Key", "message": "Message id",
	"error": "Error contains", "shape": "Error like", "cause": "Cause", "min-attempts": "Attempts, at least", "max-attempts": "Attempts, at most",
	"died-after": "Died after", "died-before": "Died before", "resolved": "Resolved",
	"status": "Status", "written-after": "Written after", "written-before": "Written before", "done-after": "Done after", "done-before": "Done before",
}

// letterFilter reads the filter that an address has.
func (q *request) letterFilter() (filter admin.Filter, err error) {
	filter = admin.Filter{
		Topic: q.name("topic"), Consumer: q.name("consumer"), Key: q.name("key"), MessageID: q.name("message"), ErrorText: q.name("error"),
		Shape: q.name("shape"), Cause: q.query.Get("cause"),
	}
	filter.Target, _ = q.optionalTarget()
	switch value := q.query.Get("resolved"); value {
	case unresolved:
	case resolved:
		filter.Resolved = "yes"
	case anyLetter:
		filter.Resolved = "any"
	default:
		return filter, badf("resolved: there is no choice %q", value)
	}
	for _, field := range []struct {
		name string
		n    *int
	}{{"min-attempts", &filter.MinAttempts}, {"max-attempts", &filter.MaxAttempts}} {
		if *field.n, err = count(filterNames[field.name], q.query.Get(field.name)); err != nil {
			return filter, err
		}
	}
	if filter.From, err = moment("died after", q.query.Get("died-after")); err != nil {
		return filter, err
	}
	if filter.Until, err = moment("died before", q.query.Get("died-before")); err != nil {
		return filter, err
	}
	return filter, nil
}

// chosenBy is the part of an address that chooses dead letters or messages, by these fields and the
// target.
func (q *request) chosenBy(fields []string) url.Values {
	chosen := url.Values{}
	for _, field := range fields {
		if value := q.query.Get(field); value != "" {
			chosen.Set(field, value)
		}
	}
	if target, ok := q.optionalTarget(); ok { // the form names it in another way
		chosen.Set(target.Kind, escaped(target.Name))
	}
	return chosen
}

func (h *Handler) filterForm(ctx context.Context, q *request) (filterForm, error) {
	targets, err := h.targets(ctx)
	if err != nil {
		return filterForm{}, err
	}
	target, chosen := q.optionalTarget()
	options := append([]option{{Text: "all", Chosen: !chosen}}, targetOptions(targets, target)...)
	value := q.query.Get
	return filterForm{
		Targets: options, Causes: choose(causeTexts, value("cause")), Resolutions: choose(resolutionTexts, value("resolved")),
		Topic: value("topic"), Consumer: value("consumer"), Key: value("key"), Message: value("message"), Error: value("error"), Shape: value("shape"),
		After: value("died-after"), Before: value("died-before"), Least: value("min-attempts"), Most: value("max-attempts"),
	}, nil
}

// conditionsOf lists the conditions of a filter.
func conditionsOf(chosen url.Values, fields []string) []fact {
	var conditions []fact
	for _, field := range fields {
		if value := chosen.Get(field); value != "" {
			conditions = append(conditions, fact{filterNames[field], value})
		}
	}
	return conditions
}
