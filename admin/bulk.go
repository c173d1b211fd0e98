package admin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/admin/internal/audit"
	"github.com/postbox-go/watermill-postbox/admin/internal/operatorsql"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Requeue lets the messages of dead letters be handled again, with all their attempts, and deletes
// the letters; the comment of the package says how. It takes the one with the filter's ID, or the
// unresolved ones that match, in the order of their ids, and returns their number. Each message
// comes after those of its key that are pending now. A message that came from a broker to an inbox
// is published again as it came, on [DeadLetter.SourceTopic] and with [DeadLetter.UUID]. What is
// not known of it, an [Again] says.
//
// With a payload or metadata in Again, Requeue edits: it lets a changed copy of the letter's
// message be handled. The message keeps its id, so the inboxes of other consumers, which have
// handled the first version, ignore it as long as they have claims. It names the letter in its
// metadata "postbox_edited_from". The letter keeps the first payload and metadata, and is resolved:
// [DeadLetter.Resolution] says that it was edited and by whom. So one of several operators who edit
// the same letter succeeds. The others get [ErrRefused], and their changes are dropped. If the
// edited message dies, edit its own letter.
//
// With an ID, Requeue is one transaction, and fails with [ErrNotFound] or [ErrRefused]; then it
// changes nothing. After [postbox.ErrCommitUnknown] it may or may not have happened. Call it again:
// [ErrNotFound] then means that it had happened; of an edit, a letter that is resolved means it.
//
// Otherwise it works in transactions of at most 100 letters and, unless a single letter is larger,
// 4 MiB. After each of them it reports the progress. The counted letters stay requeued when a later
// transaction fails. Call it again to go on after an error or a crash. When ctx ends, it finishes
// the running transaction, within five seconds, and returns the error of ctx. It ignores letters
// that were written after it began, so that a message that is requeued and fails again is not
// requeued for ever. It skips letters that another operator takes meanwhile: of several operators
// who requeue the same letters at once, one requeues each letter, and messages of a key come in the
// order of their letters. It also skips letters that cannot be requeued; the error, which is
// [ErrRefused], names up to ten of them. Any other error ends it. It fails with [ErrNotFound]
// if the filter names an outbox or a queue that does not exist.
func (a *Admin) Requeue(ctx context.Context, filter Filter, again Again, progress ...func(Progress)) (int, error) {
	if again.To != (Target{}) || again.NewIDs || again.DryRun {
		return 0, failed(invalid(errors.New("requeue dead letters: to, new ids and dry run are for a replay: leave them out")))
	}
	if again.edits() && !a.config.AllowEdit {
		return 0, failed(fmt.Errorf("edit dead letter %d: %w", filter.ID, errEditNotAllowed))
	}
	if filter.ID != 0 {
		done := "Postbox requeued a dead letter"
		if again.edits() {
			done = "Postbox edited and requeued a dead letter"
		}
		return a.onLetter(filter, done, nil, func(id int64) error { return a.letters.Requeue(ctx, id, again) })
	}
	wrong := filter.open("requeued")
	if again.edits() {
		wrong = errors.Join(wrong, errEditsMany)
	}
	return a.onLetters(ctx, filter, "requeue", wrong, func(chosen operatorsql.DeadLetterFilter) (Progress, error) {
		return a.letters.RequeueAll(ctx, chosen, filter.Limit, filter.describe(deadLetters), again, reporting(progress))
	})
}

// Resolve marks dead letters as dealt with and keeps them, with the reason, for their retention. It
// takes the one with the filter's ID, or the unresolved ones that match, and returns their number.
// The reason is required, and is cut off at 4096 bytes. A resolved letter cannot be requeued.
//
// With an ID it fails with [ErrNotFound], or with [ErrRefused] if another operator was faster;
// that operator's reason is then kept. Otherwise transactions, progress, limit and errors are those
// of [Admin.Requeue].
func (a *Admin) Resolve(ctx context.Context, filter Filter, reason string, progress ...func(Progress)) (int, error) {
	wrong := checkReason(reason)
	if filter.ID != 0 {
		if wrong != nil {
			return 0, fmt.Errorf("admin: resolve dead letter %d: %w", filter.ID, invalid(wrong))
		}
		return a.onLetter(filter, "Postbox resolved a dead letter", watermill.LogFields{"reason": reason},
			func(id int64) error { return a.letters.Resolve(ctx, id, reason) })
	}
	return a.onLetters(ctx, filter, "resolve", errors.Join(filter.open("resolved"), wrong), func(chosen operatorsql.DeadLetterFilter) (Progress, error) {
		return a.letters.ResolveAll(ctx, chosen, filter.Limit, filter.describe(deadLetters), reason, reporting(progress))
	})
}

// Delete deletes dead letters with their payloads: the one with the filter's ID, resolved or not,
// or those that match, and returns their number. [Filter.Resolved] may have any value. Unless it is
// "yes" or "any", a letter that another operator resolves meanwhile stays. An inbox still
// recognises the message as delivered for as long as it keeps claims.
//
// With an ID it fails with [ErrNotFound]. Otherwise transactions, progress, limit and errors are
// those of [Admin.Requeue].
func (a *Admin) Delete(ctx context.Context, filter Filter, progress ...func(Progress)) (int, error) {
	if filter.ID != 0 {
		return a.onLetter(filter, "Postbox deleted a dead letter", nil, func(id int64) error { return a.letters.Delete(ctx, id) })
	}
	return a.onLetters(ctx, filter, "delete", nil, func(chosen operatorsql.DeadLetterFilter) (Progress, error) {
		return a.letters.DeleteAll(ctx, chosen, filter.Limit, filter.describe(deadLetters), reporting(progress))
	})
}

// onLetter acts on the one dead letter that a filter names.
func (a *Admin) onLetter(filter Filter, logged string, fields watermill.LogFields, act func(id int64) error) (int, error) {
	err := filter.alone(deadLetters)
	if err == nil {
		err = act(filter.ID)
	}
	if err != nil {
		return 0, failed(err)
	}
	a.logger.Info(logged, watermill.LogFields{"dead_letter": filter.ID}.Add(fields))
	return 1, nil
}

// pasts are the words for what actions on many dead letters have done.
var pasts = map[string]string{"requeue": "requeued", "resolve": "resolved", "delete": "deleted"}

// onLetters acts on all dead letters that match a filter.
func (a *Admin) onLetters(
	ctx context.Context, filter Filter, what string, wrong error, act func(chosen operatorsql.DeadLetterFilter) (Progress, error),
) (int, error) {
	if err := errors.Join(filter.acting(deadLetters), filter.ofInbox(), wrong); err != nil {
		return 0, fmt.Errorf("admin: %s dead letters: %w", what, invalid(err))
	}
	if err := a.known(ctx, filter.Target); err != nil {
		return 0, err
	}
	did, err := act(filter.ofLetters())
	if did.Done > 0 {
		a.logger.Info("Postbox "+pasts[what]+" dead letters", watermill.LogFields{"count": did.Done})
	}
	if err != nil {
		return did.Done, failed(fmt.Errorf("%s dead letters: %w", what, err))
	}
	return did.Done, nil
}

// open requires letters that are not resolved. The rest of the sentence says what is to be done
// with them.
func (f Filter) open(done string) error {
	if resolutions[f.Resolved] != operatorsql.ResolvedNo {
		return fmt.Errorf("resolved: %w: leave it out, since only a letter that is not resolved can be %s", errResolved, done)
	}
	return nil
}

var errNoReason = errors.New("the reason is empty: give one")

func checkReason(reason string) error {
	if strings.TrimSpace(reason) == "" {
		return errNoReason
	}
	return nil
}

// maxStuck limits the number of errors about single letters that an action returns.
const maxStuck = 10

// bulk is a running action on the dead letters that a filter selects, page by page in the order of
// their ids.
//
// Operators who run the same action at once wait for each other at the first letter of a page,
// because each transaction locks its letters in their order. So each letter is changed once, and
// the order within a key is kept.
type bulk struct {
	letters *letterStore
	act     *audit.Act
	most    int // 0: no limit
	// one changes one letter. It returns the spool whose drainers should notice, if there is one.
	one    func(ctx context.Context, tx *sql.Tx, id int64) (*spool.Spool, error)
	report func(Progress)

	progress Progress
	stuck    []error
}

// run returns the progress also with an error.
func (b *bulk) run(ctx context.Context, filter operatorsql.DeadLetterFilter) (Progress, error) {
	progress, err := b.all(ctx, filter)
	return progress, errors.Join(append(b.stuck, err, b.letters.audit.End(ctx, b.letters.db, b.act, err))...)
}

// all ignores letters that arrive after it began, because a requeued message may become
// a dead letter again. When ctx ends, it finishes the running transaction.
func (b *bulk) all(ctx context.Context, filter operatorsql.DeadLetterFilter) (Progress, error) {
	_, _, last, err := b.letters.ends(ctx, operatorsql.DeadLetterFilter{NewestFirst: true}, 1)
	if err != nil {
		return b.progress, spool.Wrap("find the last dead letter", err)
	}
	filter.UpTo = last
	if err := b.part(ctx, nil); err != nil { // the row of the action, also if it finds nothing
		return b.progress, err
	}
	filter.Limit = bulkPage
	for filter.UpTo > 0 {
		page, err := b.letters.List(ctx, filter)
		if err == nil {
			err = b.page(ctx, page)
		}
		if err != nil {
			return b.progress, err
		}
		if len(page) < filter.Limit || b.left() == 0 {
			break
		}
		filter.After = page[len(page)-1].ID
	}
	return b.progress, nil
}

func (b *bulk) left() int { return left(b.most, b.progress.Done) }

func (b *bulk) page(ctx context.Context, page []*storedLetter) error {
	return inParts(ctx, page, func(l *storedLetter) int { return l.Size }, b.left, func(letters []*storedLetter) error {
		if err := b.part(ctx, letters); err != nil {
			return err
		}
		b.report(b.progress)
		return nil
	})
}

// part changes letters in one transaction, with the row of the action. It reads one payload at a
// time.
func (b *bulk) part(ctx context.Context, letters []*storedLetter) error {
	ctx, cancel := finishing(ctx)
	defer cancel()
	var did changes
	err := spool.InTx(ctx, b.letters.db, b.letters.statements.Statements, func(tx *sql.Tx) error {
		did = changes{woken: map[*spool.Spool]struct{}{}}
		for _, letter := range letters {
			s, err := b.one(ctx, tx, letter.ID)
			if err := did.add(letter.ID, s, err); err != nil {
				return err
			}
		}
		b.act.Affected = did.count
		return b.letters.audit.Record(ctx, tx, b.act)
	})
	if err != nil {
		return spool.Wrap("change dead letters", err)
	}
	for s := range did.woken {
		announce(ctx, b.letters.db, s, b.letters.logger)
	}
	b.progress.Done += did.count
	b.progress.Skipped += len(did.stuck)
	b.stuck = append(b.stuck, did.stuck[:min(len(did.stuck), maxStuck-len(b.stuck))]...)
	return nil
}

// changes is what a transaction has done.
type changes struct {
	count int
	stuck []error
	woken map[*spool.Spool]struct{}
}

// add adds the outcome for a letter, and returns an error that ends the action.
func (c *changes) add(id int64, s *spool.Spool, err error) error {
	if err != nil {
		err = fmt.Errorf("dead letter %d: %w", id, err)
	}
	switch {
	case err == nil:
		c.count++
		if s != nil {
			c.woken[s] = struct{}{}
		}
		return nil
	case errors.Is(err, ErrNotFound), errors.Is(err, errResolved): // another operator was faster
		return nil
	case errors.Is(err, ErrRefused):
		c.stuck = append(c.stuck, err)
		return nil
	default:
		return err
	}
}

// RequeueAll requeues the open letters that the filter selects, at most the given number (0: no
// limit). It skips letters that cannot be requeued as they are, and returns these as the error.
func (l *letterStore) RequeueAll(ctx context.Context, filter operatorsql.DeadLetterFilter, most int, chosen string, again Again, report func(Progress)) (Progress, error) {
	filter.Resolved = operatorsql.ResolvedNo
	b := &bulk{letters: l, act: audit.NewAct(audit.ActRequeue, filter.Spool).Choosing(chosen), most: most, report: report}
	b.one = func(ctx context.Context, tx *sql.Tx, id int64) (*spool.Spool, error) {
		return l.requeue(ctx, tx, id, again)
	}
	return b.run(ctx, filter)
}

// ResolveAll marks the open letters that the filter selects as dealt with.
func (l *letterStore) ResolveAll(ctx context.Context, filter operatorsql.DeadLetterFilter, most int, chosen, reason string, report func(Progress)) (Progress, error) {
	filter.Resolved = operatorsql.ResolvedNo
	b := &bulk{letters: l, act: audit.NewAct(audit.ActResolve, filter.Spool).Choosing(chosen).Noting(reason), most: most, report: report}
	b.one = func(ctx context.Context, tx *sql.Tx, id int64) (*spool.Spool, error) {
		return nil, l.resolve(ctx, tx, id, reason)
	}
	return b.run(ctx, filter)
}

// DeleteAll deletes the letters that the filter selects. If it selects open letters only, it leaves
// those that another operator resolves meanwhile.
func (l *letterStore) DeleteAll(ctx context.Context, filter operatorsql.DeadLetterFilter, most int, chosen string, report func(Progress)) (Progress, error) {
	b := &bulk{letters: l, act: audit.NewAct(audit.ActDelete, filter.Spool).Choosing(chosen), most: most, report: report}
	b.one = func(ctx context.Context, tx *sql.Tx, id int64) (*spool.Spool, error) {
		return nil, l.delete(ctx, tx, id, filter.Resolved != operatorsql.ResolvedNo)
	}
	return b.run(ctx, filter)
}
