package dashboard

import (
	"slices"

	"github.com/postbox-go/watermill-postbox/admin"
)

// afterField is the field of an address that has the cursor of the last message of a page, or of a
// replay that goes on.
const afterField = "after"

// pendingFields and doneFields are the fields of an address that choose pending messages, and those
// of the history. An address of the list may have both.
var (
	pendingFields = []string{outboxField, queueField, inboxField, "status", "topic", "key", "message", "error", "min-attempts", "written-after", "written-before"}
	doneFields    = []string{"status", "topic", "key", "message", "done-after", "done-before"}
	messageFields = slices.Concat(pendingFields, doneFields[4:])
)

func (q *request) messageForm(targets []admin.Target, target admin.Target) filterForm {
	statuses := statusTexts
	if target.Kind == inboxField {
		statuses = statusTexts[len(statusTexts)-1:] // done
	}
	return filterForm{Values: q.query, Targets: targetOptions(targets, target), Statuses: choose(statuses, q.query.Get("status"))}
}

// pendingFilter reads the filter of pending messages that an address has.
func (q *request) pendingFilter() (filter admin.Filter, err error) {
	if _, err = q.target(); err == nil {
		filter, err = q.filter(pendingFields)
	}
	if filter.Target.Kind == inboxField {
		return filter, badf("messages wait for an inbox in the broker, and it keeps only those that it has handled: choose the status %s", admin.Done)
	}
	if q.query.Get("done-after") != "" || q.query.Get("done-before") != "" {
		return filter, badf("a time at which messages were done is for the history: choose the status DONE, or leave it out")
	}
	return filter, err
}

// messageFilter reads the filter of the messages that an address chooses, pending or done.
func (q *request) messageFilter() (admin.Filter, error) {
	if admin.Status(q.query.Get("status")) == admin.Done {
		return q.doneFilter()
	}
	return q.pendingFilter()
}

// doneFilter reads the filter of messages of the history.
func (q *request) doneFilter() (filter admin.Filter, err error) {
	if _, err = q.target(); err == nil {
		filter, err = q.filter(doneFields)
	}
	for _, field := range []string{"error", "min-attempts", "written-after", "written-before"} {
		if q.query.Get(field) != "" {
			return filter, badf("%s: the history cannot be searched for it: leave it out", filterNames[field])
		}
	}
	if err == nil && filter.Status != admin.Done {
		err = badf("status: %q is not that of the history", filter.Status)
	}
	return filter, err
}
