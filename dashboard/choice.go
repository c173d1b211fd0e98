package dashboard

import (
	"context"

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
}

func (h *Handler) chooseLetters() choice {
	return choice{
		noun: "dead letter", list: lettersPage, fields: filterFields,
		count: func(ctx context.Context, q *request) (tally, error) {
			filter, err := q.letterFilter()
			if err != nil {
				return tally{}, err
			}
			filter.Limit = admin.MaxLimit
			found, err := search(ctx, filter, h.searchUntil(), h.admin.DeadLetters)
			return tally{Matches: len(found.Rows), Looked: found.Looked, More: found.Next != ""}, err
		},
	}
}

// choosePending chooses pending messages.
func (h *Handler) choosePending() choice {
	return h.chooseMessages(func(s admin.Status) []admin.Status { return []admin.Status{s} })
}

// chooseWaiting chooses those of them that wait for a time or an operator.
func (h *Handler) chooseWaiting() choice {
	of := h.chooseMessages(func(s admin.Status) []admin.Status {
		if s == "" {
			return []admin.Status{admin.Scheduled, admin.Retrying, admin.Parked}
		}
		return []admin.Status{s}
	})
	of.waits = true
	return of
}

func (h *Handler) chooseMessages(statuses func(admin.Status) []admin.Status) choice {
	return choice{
		noun: "message", list: messagesPage, fields: messageFields,
		count: func(ctx context.Context, q *request) (all tally, err error) {
			filter, err := q.pendingFilter()
			if err != nil {
				return tally{}, err
			}
			until := h.searchUntil()
			for _, filter.Status = range statuses(filter.Status) {
				filter.Limit = admin.MaxLimit
				found, err := search(ctx, filter, until, h.admin.Messages)
				if err != nil {
					return tally{}, err
				}
				all.Matches, all.Looked, all.More = all.Matches+len(found.Rows), all.Looked+found.Looked, all.More || found.Next != ""
			}
			return all, nil
		},
	}
}

// chooseDone chooses messages of the history.
func (h *Handler) chooseDone() choice {
	return choice{
		noun: "message", list: messagesPage, fields: messageFields,
		count: func(ctx context.Context, q *request) (tally, error) {
			filter, err := q.doneFilter()
			if err != nil {
				return tally{}, err
			}
			filter.Limit = admin.MaxLimit
			found, next, err := h.admin.Messages(ctx, filter)
			return tally{Matches: len(found), More: next != ""}, err
		},
	}
}
