package dashboard

import (
	"cmp"
	"context"
	"net/url"
	"reflect"
	"strconv"
	"time"

	"github.com/postbox-go/watermill-postbox/admin"
)

// filterForm has the fields of a form that chooses dead letters or messages, as the user has filled
// them in.
type filterForm struct {
	url.Values

	Targets, Statuses, Causes, Resolutions []option
}

var resolutionTexts = []option{
	{Value: "", Text: "not resolved"}, {Value: "yes", Text: "resolved"}, {Value: "any", Text: "all"},
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

// conditions are where a filter has what the fields of addresses choose.
func conditions(f *admin.Filter) map[string]any {
	return map[string]any{
		"topic": &f.Topic, "consumer": &f.Consumer, "key": &f.Key, "message": &f.MessageID, "error": &f.ErrorText, "shape": &f.Shape, "cause": &f.Cause,
		"resolved": &f.Resolved, "status": (*string)(&f.Status), "min-attempts": &f.MinAttempts, "max-attempts": &f.MaxAttempts, "actor": &f.Actor, "action": &f.Action,
		"died-after": &f.From, "written-after": &f.From, "done-after": &f.From, "from": &f.From,
		"died-before": &f.Until, "written-before": &f.Until, "done-before": &f.Until, "until": &f.Until,
	}
}

// filter reads the filter that these fields of an address choose.
func (q *request) filter(fields []string) (filter admin.Filter, err error) {
	filter.Target, _ = q.optionalTarget()
	in := conditions(&filter)
	for _, field := range fields {
		text, name := q.query.Get(field), cmp.Or(filterNames[field], field)
		switch value := in[field].(type) {
		case *string:
			*value = unescaped(text)
		case *int:
			*value, err = count(name, text)
		case *time.Time:
			*value, err = moment(name, text)
		}
		if err != nil {
			return filter, err
		}
	}
	return filter, nil
}

// choosing is the part of an address that chooses what a filter does.
func choosing(filter admin.Filter, fields []string) url.Values {
	chosen, in := url.Values{}, conditions(&filter)
	if filter.Target != (admin.Target{}) {
		chosen.Set(filter.Target.Kind, escaped(filter.Target.Name))
	}
	for _, field := range fields {
		value := reflect.ValueOf(in[field])
		if !value.IsValid() || value.Elem().IsZero() {
			continue
		}
		switch value := in[field].(type) {
		case *string:
			chosen.Set(field, escaped(*value))
		case *int:
			chosen.Set(field, strconv.Itoa(*value))
		case *time.Time:
			chosen.Set(field, value.UTC().Format(time.RFC3339Nano))
		}
	}
	return chosen
}

// letterFilter reads the filter of dead letters that an address has.
func (q *request) letterFilter() (admin.Filter, error) { return q.filter(filterFields) }

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
	return filterForm{
		Values: q.query, Targets: append([]option{{Text: "all", Chosen: !chosen}}, targetOptions(targets, target)...),
		Causes: choose(causeTexts, q.query.Get("cause")), Resolutions: choose(resolutionTexts, q.query.Get("resolved")),
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
