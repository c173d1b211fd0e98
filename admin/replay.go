package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/operate"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// ReplayedFrom is the key of the metadata in which a message that was replayed names the [Message.ID] in the history that it came from.
const ReplayedFrom = operate.ReplayedFrom

// ErrNoTopic is returned if a message of a queue or an inbox is to be published again, and nothing
// says on which topic: set [ReplayParams.Topic] or [Again.Topic].
var ErrNoTopic = operate.ErrNoTopic

// ReplayParams say what becomes of messages of the history.
type ReplayParams struct {
	// To is the outbox that publishes them. The zero value is for the outbox or the queue itself. Messages of an inbox need one, or a queue whose
	// handler works on them.
	To Target
	// Topic is the topic on which an outbox publishes them. Defaults to the topic that a message of
	// an outbox had, and to the topic from which a message of a queue or an inbox came: its
	// metadata [postbox.SourceTopic], or [Message.SourceTopic].
	Topic string
	// NewIDs gives each message a new id. With the old one, inboxes ignore a message that they have handled, as long as they remember it.
	NewIDs bool
	// After goes on with the replay that returned this [ReplayProgress.Cursor], after its last message. What is done since that replay began is
	// ignored, and so are its copies.
	After Cursor
	// Limit is the largest number of messages to replay, 0 for all.
	Limit int
}

// ReplayProgress says how far a replay has got. It is reported after each transaction.
type ReplayProgress struct {
	// Done is the number of messages that were replayed so far.
	Done int
	// Skipped is the number of messages that match the filter and were not replayed: their metadata cannot be decoded, or their retention ended
	// meanwhile.
	Skipped int
	// Cursor is the position of the last message. With it as [ReplayParams.After] another call goes on. It is empty with the error
	// [postbox.ErrCommitUnknown]: the last transaction may have been committed, and the entry of [Admin.Audit] has the right cursor.
	Cursor Cursor
}

// Replay lets messages of the history be handled or published again: it appends copies of those that match the filter, in the order in which they were
// written, and so in the order of each key. [DoneFilter.After] and [DoneFilter.Limit] must be zero. It returns how far it got, also with an error.
//
// A queue handles a copy again, whatever its id: its handler must expect that, such as by being written for it. With the id of the first time, an inbox
// behind an outbox recognises a copy as a duplicate and ignores it, for as long as it keeps claims. So a replay through an outbox reaches
// consumers without an inbox, and inboxes that never got the message; with [ReplayParams.NewIDs] it reaches every consumer. Each copy
// names its original in its metadata [ReplayedFrom].
//
// It works in transactions of at most 100 messages and, unless a single one is larger, 4 MiB, and reports the progress after each, if progress is
// not nil. Messages that are done after it began are ignored. The originals stay in the history, so a second call replays them again: to go on after an
// error or a crash, pass the last cursor as [ReplayParams.After]. The entry of [Admin.Audit] has it, too. When ctx ends, Replay finishes the
// running transaction, within five seconds, and returns the error of ctx. If the answer to a commit is lost, Replay looks in the audit log whether the
// transaction was committed, and goes on. Only if the database does not answer for 30 s, the error is [postbox.ErrCommitUnknown]. Several operators who replay the same messages replay them several times.
//
// Replay reads the history in the order of ids: the cost grows with the messages that match and with those that the filter leaves out.
func (a *Admin) Replay(
	ctx context.Context, target Target, filter DoneFilter, params ReplayParams, progress func(ReplayProgress),
) (ReplayProgress, error) {
	chosen, after, err := params.check(target, filter)
	if err != nil {
		return ReplayProgress{}, fmt.Errorf("admin: replay messages of %s: %w", target, operate.Invalid(err))
	}
	to := params.To
	if to == (Target{}) {
		to = target
	}
	did, err := a.operator.Replay(ctx, target.spool, chosen, operate.ReplayParams{
		To: to.spool, Topic: params.Topic, NewIDs: params.NewIDs, After: after, Most: params.Limit, Chosen: params.describe(filter),
	}, func(p operate.ReplayProgress) {
		if progress != nil {
			progress(replayProgress(p))
		}
	})
	if did.Done > 0 {
		a.say("An operator replayed messages", target, watermill.LogFields{"count": did.Done, "to": to.String()})
	}
	if err != nil {
		return replayProgress(did), failed(err)
	}
	return replayProgress(did), nil
}

func replayProgress(p operate.ReplayProgress) ReplayProgress {
	progress := ReplayProgress{Done: p.Done, Skipped: p.Skipped}
	if p.Cursor != (operate.ReplayCursor{}) {
		progress.Cursor = Cursor(p.Cursor.String())
	}
	return progress
}

// Validate returns all mistakes in a replay of those messages of target that the filter chooses, as far as they can be found without the database:
// it does not look whether the targets exist. [Admin.Replay] calls it.
func (p ReplayParams) Validate(target Target, filter DoneFilter) error {
	_, _, err := p.check(target, filter)
	return err
}

// check returns all mistakes, and what Replay needs otherwise.
func (p ReplayParams) check(target Target, filter DoneFilter) (dialect.MessageFilter, operate.ReplayCursor, error) {
	after, err := p.After.parseReplay()
	problems := []error{err}
	if filter.After != "" || filter.Limit != 0 {
		problems = append(problems, errors.New("filter: After and Limit are for lists: use those of ReplayParams"))
	}
	if p.Limit < 0 {
		problems = append(problems, fmt.Errorf("limit: %d is negative", p.Limit))
	}
	switch {
	case p.To.IsInbox() || p.To == (Target{}) && target.IsInbox():
		problems = append(problems, errors.New("to: an inbox handles what a broker delivers: use an outbox that publishes the messages, or a queue"))
	case p.To != (Target{}) && p.To != target && p.To.IsQueue() && !target.IsInbox():
		problems = append(problems, fmt.Errorf("to: %s is another queue: use an outbox, or leave it empty for %s itself", p.To, target))
	}
	if p.Topic != "" && (p.To.IsQueue() || (p.To == (Target{}) && target.IsQueue())) {
		problems = append(problems, fmt.Errorf("topic: all messages of a queue have the same one: leave %.60q out, or replay to an outbox", p.Topic))
	}
	if p.Topic != "" {
		problems = append(problems, spool.CheckTopic(p.Topic))
	}
	problems = append(problems, checkName("topic of the filter", filter.Topic), checkSpan("done", filter.DoneAfter, filter.DoneBefore))
	return dialect.MessageFilter{
		Topic: filter.Topic, Key: filter.Key, MessageID: filter.MessageID,
		DoneFrom: micros(filter.DoneAfter), DoneBefore: micros(filter.DoneBefore),
	}, after, errors.Join(problems...)
}

// describe names what was chosen and what becomes of it, for the audit log.
func (p ReplayParams) describe(filter DoneFilter) string {
	parts := []string{"done"}
	add := func(set bool, format string, value any) {
		if set {
			parts = append(parts, fmt.Sprintf(format, value))
		}
	}
	add(filter.Topic != "", "topic %.300q", filter.Topic)
	add(filter.Key != "", "key %.300q", filter.Key)
	add(filter.MessageID != "", "message id %.300q", filter.MessageID)
	add(!filter.DoneAfter.IsZero(), "done from %s", filter.DoneAfter.UTC().Format(time.RFC3339Nano))
	add(!filter.DoneBefore.IsZero(), "done before %s", filter.DoneBefore.UTC().Format(time.RFC3339Nano))
	add(p.After != "", "after cursor %s", p.After)
	add(p.Limit != 0, "limit %d", p.Limit)
	add(p.To != (Target{}), "to %s", p.To)
	add(p.Topic != "", "on topic %.300q", p.Topic)
	add(p.NewIDs, "with new ids%s", "")
	return strings.Join(parts, ", ")
}
