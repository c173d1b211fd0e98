package dashboard

import (
	"context"
	"slices"
	"time"

	"github.com/postbox-go/watermill-postbox/admin"
)

// choice is how the filter of an address chooses what an action changes.
type choice struct {
	noun   string
	list   string   // the page that lists what is chosen
	fields []string // of the address
	waits  bool     // it chooses no ready messages
	count  func(ctx context.Context, q *request) (tally, error)
}

// tally is how many match: at least Matches if there may be more.
type tally struct {
	Matches int
	More    bool
	// Looked is how many messages were looked at, if that was not all of them.
	Looked int
	// Inboxes says that dead letters of inboxes match, or may do so.
	Inboxes bool
	// Examples are the first one that matches, one from the middle, and the last one.
	Examples []example
}

// example is one of the things that match.
type example struct {
	Link link
	ID   int64
	Text string // the error of a dead letter, the topic of a message
	Key  string
	At   time.Time // when it died, or was written
	// Behind says after how many messages a dead letter comes if it is requeued.
	Behind string
}

func exampleOfLetter(l admin.DeadLetter) example {
	return example{Link: toLetter(l.ID), ID: l.ID, Text: saidShort(l.Error), Key: l.Key, At: l.DiedAt}
}

func exampleOf(target admin.Target) func(admin.Message) example {
	return func(m admin.Message) example {
		return example{Link: toMessage(target, m.ID), ID: m.ID, Text: short(m.Topic), Key: m.Key, At: m.CreatedAt}
	}
}

// maxExamples is how many things a question shows.
const maxExamples = 3

// countIn adds what a list has, up to [admin.CountedUpTo] and until a time.
func countIn[T any](ctx context.Context, all *tally, filter admin.Filter, until time.Time, list lister[T], show func(T) example) error {
	filter.Limit = 1000
	for {
		rows, next, err := list(ctx, filter)
		if err != nil {
			return err
		}
		for i, row := range rows {
			if i == 0 || i == len(rows)/2 || i == len(rows)-1 {
				all.Examples = append(all.Examples, show(row))
			}
		}
		all.Matches, all.Looked = all.Matches+len(rows), all.Looked+lookedAt
		if filter.After = next; next == "" {
			return nil
		}
		if all.Matches >= admin.CountedUpTo || time.Now().After(until) {
			all.More = true
			return nil
		}
	}
}

// shortened leaves so many examples as a question shows.
func (t tally) shortened() tally {
	if n := len(t.Examples); n > maxExamples {
		t.Examples = []example{t.Examples[0], t.Examples[n/2], t.Examples[n-1]}
	}
	return t
}

func (h *Handler) chooseLetters() choice {
	return choice{
		noun: "dead letter", list: lettersPage, fields: filterFields,
		count: func(ctx context.Context, q *request) (all tally, err error) {
			filter, err := q.letterFilter()
			if err != nil {
				return tally{}, err
			}
			err = countIn(ctx, &all, filter, h.searchUntil(), func(ctx context.Context, filter admin.Filter) ([]admin.DeadLetter, string, error) {
				letters, next, err := h.admin.DeadLetters(ctx, filter)
				all.Inboxes = all.Inboxes || slices.ContainsFunc(letters, func(l admin.DeadLetter) bool { return l.Consumer != "" })
				return letters, next, err
			}, exampleOfLetter)
			all.Inboxes = all.Inboxes || all.More && filter.Target == (admin.Target{})
			return all.shortened(), err
		},
	}
}

// choosePending chooses pending messages.
func (h *Handler) choosePending() choice {
	return h.chooseMessages(pendingFields, (*request).pendingFilter, "")
}

// chooseWaiting chooses those of them that wait for a time or an operator.
func (h *Handler) chooseWaiting() choice {
	of := h.chooseMessages(pendingFields, (*request).pendingFilter, admin.Scheduled, admin.Retrying, admin.Parked)
	of.waits = true
	return of
}

// chooseDone chooses messages of the history.
func (h *Handler) chooseDone() choice {
	return h.chooseMessages(messageFields, (*request).doneFilter, admin.Done)
}

// chooseMessages chooses messages of these statuses, unless the filter has one.
func (h *Handler) chooseMessages(fields []string, read func(q *request) (admin.Filter, error), statuses ...admin.Status) choice {
	return choice{
		noun: "message", list: messagesPage, fields: fields,
		count: func(ctx context.Context, q *request) (all tally, err error) {
			filter, err := read(q)
			if err != nil {
				return tally{}, err
			}
			of, until := statuses, h.searchUntil()
			if filter.Status != "" {
				of = []admin.Status{filter.Status}
			}
			for _, filter.Status = range of {
				if err := countIn(ctx, &all, filter, until, h.admin.Messages, exampleOf(filter.Target)); err != nil {
					return tally{}, err
				}
			}
			return all.shortened(), nil
		},
	}
}
