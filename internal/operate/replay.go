package operate

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/audit"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// ReplayedFrom is the metadata of a replayed message that has the id of the message of the history.
const ReplayedFrom = "postbox_replayed_from"

// ErrNoTopic is returned if a message of a queue or an inbox is to be published, and nothing says on which topic.
var ErrNoTopic = errors.New("the message does not say from which topic it came")

// ReplayParams say what becomes of messages of the history.
type ReplayParams struct {
	To     string // name of the spool
	Topic  string // on which an outbox publishes them; empty for the topic that they had
	NewIDs bool
	After  ReplayCursor
	Most   int // 0: no limit
	Chosen string
}

// ReplayCursor is the last message of a replay that may go on. Until is a time: messages that are done from then on do not belong to the replay, and
// all its copies are done later. So it does not find its own copies when it goes on.
type ReplayCursor struct{ CreatedAt, ID, Until int64 }

// ReplayCursorFormat writes and reads a cursor: the state first, as in the cursors of lists, which have one number less.
const ReplayCursorFormat = "3-%d-%d-%d"

// String returns the cursor as operators pass it on.
func (c ReplayCursor) String() string {
	return fmt.Sprintf(ReplayCursorFormat, c.CreatedAt, c.ID, c.Until)
}

// ReplayProgress says how far a replay has got, after each of its transactions.
type ReplayProgress struct {
	Done, Skipped int
	// Cursor is that of the last message. It is the zero value if no message was chosen yet, or if it is not known what became of the last transaction.
	Cursor ReplayCursor
}

// partTries is how often the transaction of a part is tried whose connection is lost in its commit.
const partTries = 3

// replay is a running Replay.
type replay struct {
	*Operator
	ReplayParams
	from, to *spool.Spool
	act      *audit.Act
	until    int64 // see ReplayCursor
	report   func(ReplayProgress)
	progress ReplayProgress
}

// Replay appends copies of messages of the history to a spool, in the order in which they were written. It ignores messages that are done after
// it began, because copies may be among them. When ctx ends, it finishes the running transaction.
func (o *Operator) Replay(
	ctx context.Context, name string, filter dialect.MessageFilter, params ReplayParams, report func(ReplayProgress),
) (ReplayProgress, error) {
	r := &replay{
		Operator: o, ReplayParams: params, report: report, progress: ReplayProgress{Cursor: params.After},
		act: audit.NewAct(audit.ActReplay, name).Choosing(params.Chosen),
	}
	err := r.run(ctx, name, filter)
	if err != nil {
		err = failedTo("replay messages of", name, err)
	}
	return r.progress, err
}

func (r *replay) run(ctx context.Context, name string, filter dialect.MessageFilter) (err error) {
	if r.from, err = r.find(ctx, name); err != nil {
		return err
	}
	if r.to, err = r.find(ctx, r.To); err != nil {
		return fmt.Errorf("%s: %w", Described(r.To), err)
	}
	var now int64
	if err := r.db.QueryRowContext(ctx, r.statements.Clock).Scan(&now); err != nil {
		return err
	}
	r.until = now
	for _, bound := range []int64{filter.DoneBefore, r.After.Until} {
		if bound != 0 {
			r.until = min(r.until, bound)
		}
	}
	filter.DoneBefore = r.until
	if err := r.part(ctx, nil); err != nil { // the row of the action, also if it finds nothing
		return err
	}
	for filter.Limit = bulkPage; ; {
		filter.After = dialect.Place{State: dialect.StateDone, Lane: r.progress.Cursor.CreatedAt, ID: r.progress.Cursor.ID}
		page, err := r.list(ctx, name, "list done messages of", filter, r.statements.DoneInOrder)
		if err == nil {
			err = r.page(ctx, page)
		}
		if err != nil || len(page) < filter.Limit || r.left() == 0 {
			return err
		}
	}
}

func (r *replay) left() int { return left(r.Most, r.progress.Done) }

func (r *replay) page(ctx context.Context, page []*Listed) error {
	return inParts(ctx, page, func(m *Listed) int { return m.Size }, r.left, func(messages []*Listed) error {
		if err := r.part(ctx, messages); err != nil {
			return err
		}
		r.report(r.progress)
		return nil
	})
}

// part replays messages in one transaction, with the row of the action. It reads one payload at a time.
func (r *replay) part(ctx context.Context, messages []*Listed) error {
	ctx, cancel := finishing(ctx)
	defer cancel()
	next, err := r.copied(ctx, messages)
	if len(messages) > 0 && errors.Is(err, postbox.ErrCommitUnknown) {
		r.progress.Cursor = ReplayCursor{}
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

// copied is copy, whose transaction is run again if it was rolled back because its connection was lost. A replay that goes on after a part that may have been
// committed could copy its messages a second time, so the audit log is asked what became of it.
func (r *replay) copied(ctx context.Context, messages []*Listed) (next ReplayProgress, err error) {
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
func (r *replay) copy(ctx context.Context, messages []*Listed) (next ReplayProgress, err error) {
	err = spool.InTx(ctx, r.db, r.statements, func(tx *sql.Tx) error {
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
			next.Cursor = ReplayCursor{CreatedAt: m.CreatedAt.UnixMicro(), ID: m.Place.ID, Until: r.until}
		}
		r.act.Affected = next.Done - r.progress.Done
		if len(messages) > 0 {
			r.act.Note = "up to cursor " + next.Cursor.String()
		}
		return r.audit.Record(ctx, tx, r.act)
	})
	return next, err
}

// one copies a message. It skips one whose retention has just ended, one that was too large to be kept whole, and one whose metadata cannot be decoded.
func (r *replay) one(ctx context.Context, tx *sql.Tx, m *Listed) (copied bool, err error) {
	if m.Omitted > 0 {
		return false, nil
	}
	var payload spool.Payload
	var encoded, carried []byte
	var source string
	query := r.statements.DoneContent(dialect.Lookup{Spool: r.from.ID(), ID: m.Place.ID}, m.CreatedAt.UnixMicro())
	err = tx.QueryRowContext(ctx, query.Text, query.Args...).Scan(&payload, &encoded, &source, &carried)
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
	metadata[ReplayedFrom] = strconv.FormatInt(m.Place.ID, 10)
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
	source := draft.Metadata[postbox.SourceTopic]
	switch {
	case r.Topic != "":
		draft.Topic = r.Topic
	case kind == spool.KindQueue && source == "":
		return fmt.Errorf("%w: name the topic", ErrNoTopic)
	case kind == spool.KindQueue:
		draft.Topic = source
	}
	if kind == spool.KindQueue {
		delete(draft.Metadata, postbox.SourceTopic) // where it arrives next, it comes from its new topic
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
			draft.Metadata[postbox.SourceTopic] = received
		}
		draft.Topic = queue
		return nil
	}
	draft.Topic = cmp.Or(r.Topic, received)
	if err := spool.CheckTopic(draft.Topic); err != nil {
		return fmt.Errorf("%w: name one: %w", ErrNoTopic, err)
	}
	return nil
}
