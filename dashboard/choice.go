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
	// count returns how many match, and whether there are more.
	count func(ctx context.Context, q *request) (n int, more bool, err error)
}

func (h *Handler) chooseLetters() choice {
	return choice{
		noun: "dead letter", list: lettersPage, fields: filterFields,
		count: func(ctx context.Context, q *request) (int, bool, error) {
			filter, err := q.letterFilter()
			if err != nil {
				return 0, false, err
			}
			filter.Limit = admin.MaxLimit
			found, err := h.admin.DeadLetters(ctx, filter)
			return len(found), len(found) == admin.MaxLimit, err
		},
	}
}

// choosePending chooses pending messages.
func (h *Handler) choosePending() choice {
	return h.chooseMessages(func(s admin.Status) []admin.Status { return []admin.Status{s} })
}

// chooseWaiting chooses those of them that wait for a time or an operator.
func (h *Handler) chooseWaiting() choice {
	return h.chooseMessages(func(s admin.Status) []admin.Status {
		if s == "" {
			return []admin.Status{admin.Scheduled, admin.Retrying, admin.Parked}
		}
		return []admin.Status{s}
	})
}

func (h *Handler) chooseMessages(statuses func(admin.Status) []admin.Status) choice {
	return choice{
		noun: "message", list: messagesPage, fields: messageFields,
		count: func(ctx context.Context, q *request) (n int, more bool, err error) {
			filter, err := q.pendingFilter()
			if err != nil {
				return 0, false, err
			}
			for _, filter.Status = range statuses(filter.Status) {
				filter.Limit = admin.MaxLimit
				found, err := h.admin.Messages(ctx, filter)
				if err != nil {
					return 0, false, err
				}
				n, more = n+len(found), more || len(found) == admin.MaxLimit
			}
			return n, more, nil
		},
	}
}

// chooseDone chooses messages of the history.
func (h *Handler) chooseDone() choice {
	return choice{
		noun: "message", list: messagesPage, fields: messageFields,
		count: func(ctx context.Context, q *request) (int, bool, error) {
			target, filter, err := q.doneFilter()
			if err != nil {
				return 0, false, err
			}
			filter.Limit = admin.MaxLimit
			found, err := h.admin.Done(ctx, target, filter)
			return len(found), len(found) == admin.MaxLimit, err
		},
	}
}
