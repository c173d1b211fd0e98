package dashboard

import (
	"github.com/postbox-go/watermill-postbox/admin"
)

// afterField is the field of an address that has the cursor of the last message of a page, or of a
// replay that goes on.
const afterField = "after"

// messageFields are the fields of an address that choose messages.
var messageFields = []string{
	outboxField, queueField, inboxField, "status", "topic", "key", "message", "error", "min-attempts", "written-after", "written-before", "done-after", "done-before",
}

// messageForm has the fields of the form that chooses messages, as the user has filled them in.
type messageForm struct {
	Targets, Statuses                 []option
	Topic, Key, Message, Error, Least string
	WrittenAfter, WrittenBefore       string
	DoneAfter, DoneBefore             string
}

func (q *request) messageForm(targets []admin.Target, target admin.Target) messageForm {
	value, statuses := q.query.Get, statusTexts
	if target.Kind == inboxField {
		statuses = statusTexts[len(statusTexts)-1:] // done
	}
	return messageForm{
		Targets: targetOptions(targets, target), Statuses: choose(statuses, value("status")),
		Topic: value("topic"), Key: value("key"), Message: value("message"), Error: value("error"), Least: value("min-attempts"),
		WrittenAfter: value("written-after"), WrittenBefore: value("written-before"), DoneAfter: value("done-after"), DoneBefore: value("done-before"),
	}
}

// More says that one of the fields is filled in that are folded away.
func (f messageForm) More() bool {
	return f.Error != "" || f.Least != "" || f.WrittenAfter != "" || f.WrittenBefore != "" || f.DoneAfter != "" || f.DoneBefore != ""
}

// pendingFilter reads the filter of pending messages that an address has.
func (q *request) pendingFilter() (filter admin.Filter, err error) {
	filter = admin.Filter{
		Status: admin.Status(q.query.Get("status")), Topic: q.name("topic"), Key: q.name("key"), MessageID: q.name("message"), ErrorText: q.name("error"),
	}
	if filter.Target, err = q.target(); err != nil {
		return filter, err
	}
	if filter.Target.Kind == inboxField {
		return filter, badf("messages wait for an inbox in the broker, and it keeps only those that it has handled: choose the status %s", admin.Done)
	}
	if q.query.Get("done-after") != "" || q.query.Get("done-before") != "" {
		return filter, badf("a time at which messages were done is for the history: choose the status DONE, or leave it out")
	}
	if filter.MinAttempts, err = count(filterNames["min-attempts"], q.query.Get("min-attempts")); err != nil {
		return filter, err
	}
	if filter.From, err = moment("written after", q.query.Get("written-after")); err != nil {
		return filter, err
	}
	filter.Until, err = moment("written before", q.query.Get("written-before"))
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
	filter = admin.Filter{Status: admin.Done, Topic: q.name("topic"), Key: q.name("key"), MessageID: q.name("message")}
	if filter.Target, err = q.target(); err != nil {
		return filter, err
	}
	for _, field := range []string{"error", "min-attempts", "written-after", "written-before"} {
		if q.query.Get(field) != "" {
			return filter, badf("%s: the history cannot be searched for it: leave it out", filterNames[field])
		}
	}
	if status := admin.Status(q.query.Get("status")); status != admin.Done {
		return filter, badf("status: %q is not that of the history", status)
	}
	if filter.From, err = moment("done after", q.query.Get("done-after")); err != nil {
		return filter, err
	}
	filter.Until, err = moment("done before", q.query.Get("done-before"))
	return filter, err
}
