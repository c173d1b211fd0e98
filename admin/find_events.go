package admin

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/postbox-go/watermill-postbox/admin/internal/operatorsql"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// What has happened to what [Admin.Find] has found, in words.

// message adds what has happened to a message.
func (f *finder) message(ctx context.Context, target Target, m *storedMessage) error {
	about := Event{Target: target, Message: m.ID, MessageID: m.MessageID, Topic: m.Topic, Key: m.Key}
	subject := spool.MessageSubject(m.ID, m.CreatedAt.UnixMicro())
	if f.known(target.String()+string(subject), m.MessageID, target, fmt.Sprintf("message %d", m.ID)) {
		return nil
	}
	if target.Kind != spool.KindInbox {
		f.add(about, m.CreatedAt, "written to the "+target.String())
	}
	last, err := f.failures(ctx, about, subject)
	failed := ""
	if m.Attempts > 0 && m.Status != Done {
		failed = ", after " + attempts(m.Attempts)
	}
	switch m.Status {
	case Ready:
		f.add(about, m.CreatedAt, "is ready, and waits for its turn or the end of a pause")
	case Scheduled:
		f.add(about, m.DueAt, "is due, as its producer or an operator asked")
	case Retrying:
		f.add(about, m.DueAt, "is tried again"+failed)
	case Parked:
		f.add(about, cmp.Or(last, m.CreatedAt), "is parked, and waits for an operator"+failed)
	case Done:
		f.add(about, m.DoneAt, doneText(target, m))
	}
	return err
}

// doneText says what it means that a message is done.
func doneText(target Target, m *storedMessage) string {
	if target.Kind == spool.KindInbox {
		return fmt.Sprintf("received and handled by the consumer %.300q within %s, in %s", target.Name, m.DoneAt.Sub(m.CreatedAt).Round(time.Millisecond), m.Process)
	}
	done := "published"
	if target.Kind == spool.KindQueue {
		done = "handled"
	}
	text := fmt.Sprintf("%s by attempt %d, %s after it was written", done, m.Attempts, m.DoneAt.Sub(m.CreatedAt).Round(time.Millisecond))
	if m.Process != "" { // its lane was handed back meanwhile
		text += ", in " + m.Process
	}
	if m.Took > 0 {
		text += fmt.Sprintf(", which took %s", m.Took.Round(10*time.Microsecond))
	}
	return text
}

func attempts(n int) string {
	if n == 1 {
		return "1 attempt"
	}
	return fmt.Sprintf("%d attempts", n)
}

// add adds an event.
func (f *finder) add(about Event, at time.Time, text string) {
	about.At, about.Text = at, text
	f.found.Events = append(f.found.Events, about)
}

// failures adds the failed attempts of a message, and returns when the last of them was. Those
// before it was requeued are the same for each message with its id.
func (f *finder) failures(ctx context.Context, about Event, subject []byte) (last time.Time, err error) {
	before := requeuedSubject(about.Target, about.MessageID)
	if name := string(before); f.seen[name] {
		before = nil
	} else {
		f.seen[name] = true
	}
	failures, err := readFailures(ctx, f.db, f.statements, subject, before, maxHistory)
	for _, failure := range failures {
		text := "note"
		if failure.Attempt > 0 {
			text = fmt.Sprintf("attempt %d failed", failure.Attempt)
		}
		if failure.Process != "" {
			text += ", in " + failure.Process
		}
		about.Error, last = failure.Error, failure.At
		f.add(about, failure.At, text)
	}
	return last, err
}

// letter adds what has happened to the message of a dead letter, if there is one.
func (f *finder) letter(ctx context.Context, id int64) error {
	page, err := f.letters.page(ctx, operatorsql.DeadLetterFilter{After: id - 1, UpTo: id, Resolved: operatorsql.ResolvedAny, Limit: 1})
	if err != nil || len(page) == 0 || f.known(fmt.Sprintf("letter %d", id), page[0].MessageID, page[0].Target, fmt.Sprintf("dead letter %d", id)) {
		return err
	}
	l := page[0]
	about := Event{Target: l.Target, Letter: id, MessageID: l.MessageID, Topic: l.Topic, Key: l.Key}
	of := fmt.Sprintf("the consumer %.300q", l.Consumer)
	if l.Consumer == "" {
		of = "the " + l.Target.String()
		f.add(about, l.CreatedAt, "written to "+of)
	}
	_, err = f.failures(ctx, about, l.Subject)
	about.Error = l.Error
	f.add(about, l.DiedAt, fmt.Sprintf("became dead letter %d of %s, after %s: %s", id, of, attempts(l.Attempts), causeTexts[l.Cause]))
	if about.Error = ""; !l.ResolvedAt.IsZero() {
		f.add(about, l.ResolvedAt, "resolved: "+l.Resolution)
	}
	return err
}

// causeTexts say why a message died.
var causeTexts = map[string]string{
	"attempts": "they are used up", "permanent": "its error is permanent", "crash": "it crashed its process", "unreadable": "it cannot be read", "operator": "an operator buried it",
	causeUnknown: "the cause is not known",
}

// receipt adds what a receipt says.
func (f *finder) receipt(r Receipt) {
	about := Event{MessageID: r.MessageID, Topic: r.Topic}
	consumer := fmt.Sprintf("the consumer %.300q", r.Consumer)
	switch {
	case !r.HandledAt.IsZero():
		f.add(about, r.HandledAt, "handled by "+consumer+", as its receipt says")
	case r.Status == receiptStatuses[dialect.ReceiptMissing]:
		f.add(about, r.DueAt, "no receipt of "+consumer+" has come until then")
	default:
		f.add(about, r.DueAt, "a receipt of "+consumer+" is awaited until then")
	}
}
