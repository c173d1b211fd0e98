package admin

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin/internal/audit"
	"github.com/postbox-go/watermill-postbox/admin/internal/operatorsql"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// replayedFrom is the key of the metadata in which a message that was replayed names the
// [Message.ID] in the history that it came from.
const replayedFrom = "postbox_replayed_from"

// errNoTopic is the error for a message of a queue or an inbox that is to be published again if
// nothing says on which topic.
var errNoTopic = fmt.Errorf("%w: the message does not say from which topic it came: name the topic", ErrRefused)

// Replay lets messages of the history be handled or published again: it appends copies of those
// that match the filter, in the order in which they were written, and so in the order of each key.
// [Filter.Status] may be Done. It returns how far it got, also with an error.
//
// A queue handles a copy again, whatever its id: its handler must expect that, such as by being
// written for it. With the id of the first time, an inbox behind an outbox recognises a copy as a
// duplicate and ignores it, for as long as it keeps claims. So a replay through an outbox reaches
// consumers without an inbox, and inboxes that never got the message; with [Again.NewIDs] it
// reaches every consumer. Each copy names its original in its metadata "postbox_replayed_from".
//
// It works in transactions of at most 100 messages and, unless a single one is larger, 4 MiB, and
// reports the progress after each, if progress is not nil. Messages that are done after it began
// are ignored. The originals stay in the history, so a second call replays them again. To go on
// after an error or a crash, pass the last [Progress.Cursor] as [Filter.After]: Replay goes on
// after that message, and ignores what is done since the first call began. The entry of
// [Admin.Audit] has the cursor, too. When ctx ends, Replay finishes the running transaction, within
// five seconds, and returns the error of ctx. If the answer to a commit is lost, Replay looks in
// the audit log whether the transaction was committed, and goes on. Only if the database does not
// answer for 30 s, the error is [postbox.ErrCommitUnknown]. Several operators who replay the same
// messages replay them several times.
//
// Replay reads the history in the order of ids: the cost grows with the messages that match and
// with those that the filter leaves out.
func (a *Admin) Replay(ctx context.Context, filter Filter, again Again, progress ...func(Progress)) (Progress, error) {
	target := filter.Target
	chosen, after, err := again.checkReplay(filter)
	if err != nil {
		return Progress{}, fmt.Errorf("admin: replay messages of %s: %w", target, invalid(err))
	}
	to := again.To
	if to == (Target{}) {
		to = target
	}
	report := reporting(progress)
	did, err := a.operator.Replay(ctx, target.stored(), chosen, replayChoice{
		Again: again, into: to.stored(), after: after, most: filter.Limit, chosen: again.describeReplay(filter),
	}, func(p replayDone) { report(replayProgress(p)) })
	if did.Done > 0 {
		a.say("An operator replayed messages", target, watermill.LogFields{"count": did.Done, "to": to.String()})
	}
	if err != nil {
		return replayProgress(did), failed(err)
	}
	return replayProgress(did), nil
}

func replayProgress(p replayDone) Progress {
	progress := Progress{Done: p.Done, Skipped: p.Skipped}
	if p.Cursor != (replayCursor{}) {
		progress.Cursor = p.Cursor.String()
	}
	return progress
}

// checkReplay returns all mistakes in a replay of the messages that the filter chooses, and what
// Replay needs otherwise.
func (a Again) checkReplay(filter Filter) (operatorsql.MessageFilter, replayCursor, error) {
	after, err := cursor(filter.After).parseReplay()
	problems := []error{err}
	target := filter.Target
	filter.After = ""
	if filter.Status != "" && filter.Status != Done {
		problems = append(problems, fmt.Errorf("status: only messages that are %s can be replayed: leave it out", Done))
	}
	if a.OlderThanClaims || a.edits() {
		problems = append(problems, errors.New("older than claims, payload and metadata: they are for dead letters: leave them out"))
	}
	switch {
	case a.To.Kind == spool.KindInbox || a.To == (Target{}) && target.Kind == spool.KindInbox:
		problems = append(problems, errors.New("to: an inbox handles what a broker delivers: use an outbox that publishes the messages, or a queue"))
	case a.To != (Target{}) && a.To != target && a.To.Kind == spool.KindQueue && target.Kind != spool.KindInbox:
		problems = append(problems, fmt.Errorf("to: %s is another queue: use an outbox, or leave it empty for %s itself", a.To, target))
	}
	if a.Topic != "" && (a.To.Kind == spool.KindQueue || (a.To == (Target{}) && target.Kind == spool.KindQueue)) {
		problems = append(problems, fmt.Errorf("topic: all messages of a queue have the same one: leave %.60q out, or replay to an outbox", a.Topic))
	}
	if a.Topic != "" {
		problems = append(problems, spool.CheckTopic(a.Topic))
	}
	problems = append(problems, filter.acting(doneMessages))
	return operatorsql.MessageFilter{
		Topic: filter.Topic, Key: filter.Key, MessageID: filter.MessageID,
		DoneFrom: micros(filter.From), DoneBefore: micros(filter.Until),
	}, after, errors.Join(problems...)
}

// describeReplay names what was chosen and what becomes of it, for the audit log.
func (a Again) describeReplay(filter Filter) string {
	chosen := filter
	chosen.After, chosen.Limit = "", 0
	parts := []string{strings.TrimSuffix("done, "+chosen.describe(doneMessages), ", all")}
	add := func(set bool, format string, value any) {
		if set {
			parts = append(parts, fmt.Sprintf(format, value))
		}
	}
	add(filter.After != "", "after cursor %s", filter.After)
	add(filter.Limit != 0, "limit %d", filter.Limit)
	add(a.To != (Target{}), "to %s", a.To)
	add(a.Topic != "", "on topic %.300q", a.Topic)
	add(a.NewIDs, "with new ids%s", "")
	return strings.Join(parts, ", ")
}

// replayChoice says what becomes of messages of the history.
type replayChoice struct {
	Again
	into   string // name of the spool
	after  replayCursor
	most   int // 0: no limit
	chosen string
}

// replayCursor is the last message of a replay that may go on. Until is a time: messages that are
// done from then on do not belong to the replay, and all its copies are done later. So it does not
// find its own copies when it goes on.
type replayCursor struct{ CreatedAt, ID, Until int64 }

// replayCursorFormat writes and reads a cursor: the state first, as in the cursors of lists, which
// have one number less.
const replayCursorFormat = "3-%d-%d-%d"

// String returns the cursor as operators pass it on.
func (c replayCursor) String() string {
	return fmt.Sprintf(replayCursorFormat, c.CreatedAt, c.ID, c.Until)
}

// replayDone says how far a replay has got, after each of its transactions.
type replayDone struct {
	Done, Skipped int
	// Cursor is that of the last message. It is the zero value if no message was chosen yet, or if
	// it is not known what became of the last transaction.
	Cursor replayCursor
}

// partTries is how often the transaction of a part is tried whose connection is lost in its commit.
const partTries = 3

// replay is a running Replay.
type replay struct {
	*operator
	replayChoice
	from, to *spool.Spool
	act      *audit.Act
	until    int64 // see ReplayCursor
	report   func(replayDone)
	progress replayDone
}

// Replay appends copies of messages of the history to a spool, in the order in which they were
// written. It ignores messages that are done after it began, because copies may be among them. When
// ctx ends, it finishes the running transaction.
func (o *operator) Replay(
	ctx context.Context, name string, filter operatorsql.MessageFilter, choice replayChoice, report func(replayDone),
) (replayDone, error) {
	r := &replay{
		operator: o, replayChoice: choice, report: report, progress: replayDone{Cursor: choice.after},
		act: audit.NewAct(audit.ActReplay, name).Choosing(choice.chosen),
	}
	err := r.run(ctx, name, filter)
	if err != nil {
		err = failedTo("replay messages of", name, err)
	}
	return r.progress, err
}

func (r *replay) run(ctx context.Context, name string, filter operatorsql.MessageFilter) (err error) {
	if r.from, err = r.find(ctx, name); err != nil {
		return err
	}
	if r.to, err = r.find(ctx, r.into); err != nil {
		return invalid(fmt.Errorf("to: %s: %w", described(r.into), err))
	}
	if r.DryRun {
		return nil
	}
	var now int64
	if err := r.db.QueryRowContext(ctx, r.statements.Clock).Scan(&now); err != nil {
		return err
	}
	r.until = now
	for _, bound := range []int64{filter.DoneBefore, r.after.Until} {
		if bound != 0 {
			r.until = min(r.until, bound)
		}
	}
	filter.DoneBefore = r.until
	if err := r.part(ctx, nil); err != nil { // the row of the action, also if it finds nothing
		return err
	}
	for filter.Limit = bulkPage; ; {
		filter.After = operatorsql.Place{State: operatorsql.StateDone, Lane: r.progress.Cursor.CreatedAt, ID: r.progress.Cursor.ID}
		page, err := r.list(ctx, name, "list done messages of", filter, r.statements.DoneInOrder)
		if err == nil {
			err = r.page(ctx, page)
		}
		if err != nil || len(page) < filter.Limit || r.left() == 0 {
			return err
		}
	}
}

func (r *replay) left() int { return left(r.most, r.progress.Done) }

func (r *replay) page(ctx context.Context, page []*storedMessage) error {
	return inParts(ctx, page, func(m *storedMessage) int { return m.Size }, r.left, func(messages []*storedMessage) error {
		if err := r.part(ctx, messages); err != nil {
			return err
		}
		r.report(r.progress)
		return nil
	})
}

// part replays messages in one transaction, with the row of the action. It reads one payload at a
// time.
func (r *replay) part(ctx context.Context, messages []*storedMessage) error {
	ctx, cancel := finishing(ctx)
	defer cancel()
	next, err := r.copied(ctx, messages)
	if len(messages) > 0 && errors.Is(err, postbox.ErrCommitUnknown) {
		r.progress.Cursor = replayCursor{}
	}
	if err != nil {
		return err
	}
	r.progress = next
	if len(messages) == 0 {
		return nil
	}
	announce(ctx, r.db, r.to, r.logger)
	return nil
}

// copied is copy, whose transaction is run again if it was rolled back because its connection was
// lost. A replay that goes on after a part that may have been committed could copy its messages a
// second time, so the audit log is asked what became of it.
func (r *replay) copied(ctx context.Context, messages []*storedMessage) (next replayDone, err error) {
	for range partTries {
		if next, err = r.copy(ctx, messages); !errors.Is(err, postbox.ErrCommitUnknown) {
			break
		}
		switch committed, askErr := r.audit.Committed(ctx, r.db, r.act); {
		case askErr != nil:
			return next, errors.Join(err, askErr)
		case committed:
			return next, nil
		}
	}
	return next, err
}

// copy is the transaction of a part. It returns how far the replay has got with it.
func (r *replay) copy(ctx context.Context, messages []*storedMessage) (next replayDone, err error) {
	err = spool.InTx(ctx, r.db, r.statements.Statements, func(tx *sql.Tx) error {
		next = r.progress
		for _, m := range messages {
			copied, err := r.one(ctx, tx, m)
			switch {
			case err != nil:
				return fmt.Errorf("message %d: %w", m.Place.ID, err)
			case copied:
				next.Done++
			default:
				next.Skipped++
			}
			next.Cursor = replayCursor{CreatedAt: m.CreatedAt.UnixMicro(), ID: m.Place.ID, Until: r.until}
		}
		r.act.Affected = next.Done - r.progress.Done
		if len(messages) > 0 {
			r.act.Note = "up to cursor " + next.Cursor.String()
		}
		return r.audit.Record(ctx, tx, r.act)
	})
	return next, err
}

// one copies a message. It skips one whose retention has just ended, one that was too large to be
// kept whole, and one whose metadata cannot be decoded.
func (r *replay) one(ctx context.Context, tx *sql.Tx, m *storedMessage) (copied bool, err error) {
	if m.Omitted > 0 {
		return false, nil
	}
	var payload spool.Payload
	var encoded, carried []byte
	var source string
	query := r.statements.DoneMessage(operatorsql.Lookup{Spool: r.from.ID(), ID: m.Place.ID}, m.CreatedAt.UnixMicro())
	err = new(storedMessage).scan(tx.QueryRowContext(ctx, query.Text, query.Args...).Scan, &payload, &encoded, &source, &carried)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	metadata, err := spool.DecodeMetadata(encoded)
	if err != nil {
		return false, nil //nolint:nilerr // it is counted as skipped
	}
	if metadata == nil {
		metadata = map[string]string{}
	}
	draft := spool.Draft{Topic: m.Topic, MessageID: string(carried), Key: m.Key, Payload: payload, Metadata: metadata}
	if err := r.address(&draft, source); err != nil {
		return false, err
	}
	if r.NewIDs {
		draft.MessageID = postbox.NewMessageID()
	}
	metadata[replayedFrom] = strconv.FormatInt(m.Place.ID, 10)
	return true, r.to.Append(ctx, tx, spool.Run, []spool.Draft{draft})
}

// address gives a message that leaves its queue, or gets another topic, that topic.
func (r *replay) address(draft *spool.Draft, received string) error {
	kind, _ := spool.Named(r.from.Name())
	if kind == spool.KindInbox {
		return r.addressReceived(draft, received)
	}
	if r.to.Name() == r.from.Name() && r.Topic == "" {
		return nil
	}
	source := draft.Metadata[postbox.MetadataSourceTopic]
	switch {
	case r.Topic != "":
		draft.Topic = r.Topic
	case kind == spool.KindQueue && source == "":
		return errNoTopic
	case kind == spool.KindQueue:
		draft.Topic = source
	}
	if kind == spool.KindQueue {
		delete(draft.Metadata, postbox.MetadataSourceTopic) // where it arrives next, it comes from its new topic
	}
	return nil
}

// addressReceived addresses a message that an inbox has received from a broker on a topic. The
// topic of the draft only names what the inbox knows it by. Where the message came from, a queue
// believes this service alone: what the producer wrote about that is in the history, too.
func (r *replay) addressReceived(draft *spool.Draft, received string) error {
	if kind, queue := spool.Named(r.to.Name()); kind == spool.KindQueue {
		spool.ForgetOrigin(draft.Metadata)
		if received != "" {
			draft.Metadata[postbox.MetadataSourceTopic] = received
		}
		draft.Topic = queue
		return nil
	}
	draft.Topic = cmp.Or(r.Topic, received)
	if err := spool.CheckTopic(draft.Topic); err != nil {
		return fmt.Errorf("%w: %w", errNoTopic, err)
	}
	return nil
}
