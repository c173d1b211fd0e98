package dashboard

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/postbox-go/watermill-postbox/admin"
)

// The values of the field that says what is done to all that match a filter.
const (
	bulkRequeue    = "requeue"
	bulkResolve    = "resolve"
	bulkDelete     = "delete"
	bulkRunNow     = "run-now"
	bulkReschedule = "reschedule"
	bulkBury       = "bury"
	bulkReplay     = "replay"
)

// toBulk is the address of the page that asks for a confirmation.
func toBulk(do string, chosen url.Values) link { return link{bulkPage, chosen}.with("do", do) }

// bulkKind is something that can be done to all dead letters or messages that match a filter.
type bulkKind struct {
	// Verb stands before the things, and After, if it is set, behind them.
	Verb, After string
	Done        string
	Warning     string
	// What the form asks for.
	NeedsWhy, NeedsTime, Replays, Requeues bool
	// of is what the filter chooses.
	of choice
	// order reads the form.
	order func(q *request) (bulkOrder, error)
}

// Noun is what one of the things is called.
func (k bulkKind) Noun() string { return k.of.noun }

// OnlyWaiting says that ready messages are not chosen.
func (k bulkKind) OnlyWaiting() bool { return k.of.waits }

// section is the page of the navigation to which the pages of the action belong.
func (k bulkKind) section() string { return k.of.list }

// bulkOrder carries out what a user has confirmed, and returns how many things were changed. The
// cursor is where it has got if a second run would not go on by itself.
type bulkOrder func(ctx context.Context, progress func(done int)) (done int, cursor string, err error)

func (h *Handler) bulkKinds() map[string]bulkKind {
	return map[string]bulkKind{
		bulkRequeue: {
			Verb: "Requeue", Done: "requeued", Warning: "Their messages are handled again, with all attempts, each behind those of its key that wait now.", Requeues: true, of: h.chooseLetters(),
			order: h.letterOrder(func(ctx context.Context, filter admin.Filter, q *request, progress func(admin.Progress)) (int, error) {
				return h.admin.Requeue(ctx, filter, q.again(), progress)
			}),
		},
		bulkResolve: {
			Verb: "Resolve", Done: "resolved", Warning: "They are kept for their retention, and cannot be requeued.", NeedsWhy: true, of: h.chooseLetters(),
			order: h.letterOrder(func(ctx context.Context, filter admin.Filter, q *request, progress func(admin.Progress)) (int, error) {
				return h.admin.Resolve(ctx, filter, q.PostFormValue("reason"), progress)
			}),
		},
		bulkDelete: {
			Verb: "Delete", Done: "deleted", Warning: "Their messages and payloads are deleted for good.", of: h.chooseLetters(),
			order: h.letterOrder(func(ctx context.Context, filter admin.Filter, _ *request, progress func(admin.Progress)) (int, error) {
				return h.admin.Delete(ctx, filter, progress)
			}),
		},
		bulkRunNow: {
			Verb: "Run", After: " now", Done: "made due", Warning: "They are handled as soon as possible. A parked message gets all its attempts again.", of: h.chooseWaiting(),
			order: h.messageOrder(func(ctx context.Context, filter admin.Filter, _ *request, progress func(admin.Progress)) (int, error) {
				return h.admin.Reschedule(ctx, filter, time.Time{}, progress)
			}),
		},
		bulkReschedule: {
			Verb: "Reschedule", Done: "rescheduled", Warning: "They wait until another time. A parked message gets all its attempts again.", NeedsTime: true, of: h.chooseWaiting(),
			order: h.rescheduleOrder,
		},
		bulkBury: {
			Verb: "Bury", Done: "buried", NeedsWhy: true, of: h.choosePending(),
			Warning: "They become dead letters, and the other messages of their keys go on. One that is in a handler now may have its effect all the same: pause the outbox or queue first if that matters.",
			order: h.messageOrder(func(ctx context.Context, filter admin.Filter, q *request, progress func(admin.Progress)) (int, error) {
				return h.admin.Bury(ctx, filter, q.PostFormValue("reason"), progress)
			}),
		},
		bulkReplay: {
			Verb: "Replay", Done: "replayed", Warning: "Copies of them are handled or published again, in the order in which they were written.", Replays: true, of: h.chooseDone(),
			order: h.replayOrder,
		},
	}
}

// bulkView asks for a confirmation.
type bulkView struct {
	bulkKind
	tally

	// Until is when the page asked. The action does not touch messages and letters that come later.
	Until      string
	Conditions []fact
	Run        link
	Back       link
	Replay     replayForm
}

// confirmBulk shows what would be done, before it is done.
func (h *Handler) confirmBulk(ctx context.Context, q *request) (any, error) {
	kind, err := h.bulkOf(q) //nolint:contextcheck // the orders that it has take the context of the request
	if err != nil {
		return nil, err
	}
	asked, err := h.admin.Now(ctx)
	if err != nil {
		return nil, err
	}
	matching, err := kind.of.count(ctx, q)
	if err != nil {
		return nil, err
	}
	chosen := q.chosenBy(kind.of.fields)
	view := bulkView{
		bulkKind: kind, tally: matching, Until: asked.Add(time.Microsecond).UTC().Format(time.RFC3339Nano), Conditions: conditionsOf(chosen, kind.of.fields),
		Run: link{"bulk-run", chosen}.with("do", q.query.Get("do")), Back: link{kind.of.list, chosen},
	}
	if kind.Replays {
		view.Replay, err = h.replayForm(ctx, q)
	}
	for i := 0; kind.Requeues && i < len(view.Examples); i++ {
		if view.Examples[i].Behind, err = h.behind(ctx, view.Examples[i].ID); err != nil {
			return nil, err
		}
	}
	return view, err
}

func (h *Handler) bulkOf(q *request) (bulkKind, error) {
	kind, exists := h.bulkKinds()[q.query.Get("do")]
	if !exists {
		return bulkKind{}, badf("do: there is no such action on all that match")
	}
	for field, values := range q.query {
		goesOn := field == afterField && kind.Replays
		if len(values) > 1 {
			return bulkKind{}, badf("%.60s: it has several values: write one", field)
		}
		if field != "do" && field != targetField && !goesOn && !slices.Contains(kind.of.fields, field) {
			return bulkKind{}, badf("%.60q is no condition of this action, which would change more than you want: the conditions are %s",
				field, strings.Join(kind.of.fields, ", "))
		}
	}
	if kind.of.waits && admin.Status(q.query.Get("status")) == admin.Ready {
		return bulkKind{}, badf("status: messages that are %s are handled as soon as possible: choose another status, or leave it out", admin.Ready)
	}
	for field := range q.PostForm {
		if !slices.Contains(bulkForm, field) {
			return bulkKind{}, badf("%.60q is no field of the form: conditions are read from the address alone", field)
		}
	}
	return kind, nil
}

// bulkForm are the fields of the forms of bulk actions. One that has another field is a request
// that was made by hand, with conditions that would choose nothing.
var bulkForm = []string{"reason", "at", untilField, "to", "to-topic", "new-ids", "older-than-claims", afterField}

// untilField is the field of a form with the time of its question. What was written, done or dead
// later is left alone.
const untilField = "until"

// counted leaves out what the question has not counted.
func (q *request) counted(filter admin.Filter) (admin.Filter, error) {
	until, err := moment(untilField, q.PostFormValue(untilField))
	if err == nil && !until.IsZero() && (filter.Until.IsZero() || until.Before(filter.Until)) {
		filter.Until = until
	}
	return filter, err
}

func (h *Handler) stopBulk(_ context.Context, q *request) (link, error) {
	id, err := q.id()
	for _, run := range h.bulks.all(id) {
		run.cancel()
	}
	return to(auditPage), err
}

// Close ends the bulk actions, each after its running transaction, and waits for them. Their rows
// in the audit log say that they were stopped. No other one begins after it.
func (h *Handler) Close() error {
	h.bulks.close()
	return nil
}

// runBulk carries out a bulk action in the background, and sends lines about its progress to the
// browser. It goes on if the browser goes away: its row in the audit log says how far it is, and
// anybody can start it again for the rest.
func (h *Handler) runBulk(w http.ResponseWriter, q *request) {
	q.Body = http.MaxBytesReader(w, q.Body, maxForm)
	if err := q.ParseForm(); err != nil {
		h.failed(w, q, mistakeError{err})
		return
	}
	kind, err := h.bulkOf(q)
	if err == nil && kind.NeedsWhy {
		_, err = q.reason()
	}
	var order bulkOrder
	if err == nil {
		order, err = kind.order(q)
	}
	if err != nil {
		h.failed(w, q, notBegunError{err})
		return
	}
	chosen := q.chosenBy(kind.of.fields)
	run := &bulkRun{bulkKind: kind, Back: link{kind.of.list, chosen}}
	err = h.bulks.start(q.Context(), run, func(ctx context.Context) {
		run.err = recovered(ctx, func(ctx context.Context) (err error) {
			defer h.samples.forget()
			var cursor string
			run.done, cursor, err = order(ctx, func(n int) { run.far.Store(int64(n)) })
			if err != nil && cursor != "" {
				run.goOn = toBulk(q.query.Get("do"), chosen).with(afterField, cursor)
			}
			return err
		})
	})
	if err != nil {
		h.failed(w, q, notBegunError{err})
		return
	}
	h.follow(w, q, run)
}

type bulkAct func(ctx context.Context, filter admin.Filter, q *request, progress func(admin.Progress)) (int, error)

func (h *Handler) letterOrder(act bulkAct) func(q *request) (bulkOrder, error) {
	return h.orderOf(act, func(q *request) (admin.Filter, error) {
		filter, err := q.letterFilter()
		return filter, errors.Join(err, h.mistakesIn(q, filter))
	})
}

func (h *Handler) messageOrder(act bulkAct) func(q *request) (bulkOrder, error) {
	return h.orderOf(act, (*request).pendingFilter)
}

func (h *Handler) orderOf(act bulkAct, read func(q *request) (admin.Filter, error)) func(q *request) (bulkOrder, error) {
	return func(q *request) (bulkOrder, error) {
		filter, err := read(q)
		if err == nil {
			filter, err = q.counted(filter)
		}
		filter.All = true // the page has said what would be changed
		return func(ctx context.Context, progress func(int)) (int, string, error) {
			done, err := act(ctx, filter, q, func(p admin.Progress) { progress(p.Done) })
			return done, "", err
		}, err
	}
}

// mistakesIn returns the mistakes in a filter of dead letters. Other errors come from the action.
func (h *Handler) mistakesIn(q *request, filter admin.Filter) error {
	filter.Limit = 1
	err := h.within(q.Context(), func(ctx context.Context) error {
		_, _, err := h.admin.DeadLetters(ctx, filter)
		return err
	})
	if errors.Is(err, admin.ErrInvalid) {
		return err
	}
	return nil
}

func (h *Handler) rescheduleOrder(q *request) (bulkOrder, error) {
	at, err := q.dueTime()
	if err != nil {
		return nil, err
	}
	return h.messageOrder(func(ctx context.Context, filter admin.Filter, _ *request, progress func(admin.Progress)) (int, error) {
		return h.admin.Reschedule(ctx, filter, at, progress)
	})(q)
}

// dueTime reads when a message shall be handled.
func (q *request) dueTime() (time.Time, error) {
	at, err := moment("time", q.PostFormValue("at"))
	if err == nil && at.IsZero() {
		err = badf("the time is missing: write when the message shall be handled, in UTC")
	}
	return at, err
}
