package admin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/audit"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// RequeueAll requeues the unresolved dead letters that match the filter, in the order of their ids, and returns
// their number. [Filter.Limit] is the largest number to requeue, 0 for all; [Filter.Resolved] must be empty.
//
// It works in transactions of at most 100 letters and, unless a single letter is larger, 4 MiB. After each of them it reports the progress, if
// progress is not nil. The counted letters stay requeued when a later transaction fails. Call RequeueAll again to go on after an error or a crash. When
// ctx ends, it finishes the running transaction, within five seconds, and returns the error of ctx.
//
// RequeueAll ignores letters that were written after it began, so that a message that is requeued and fails again is not requeued for
// ever. It skips letters that another operator takes meanwhile: of several operators who requeue the same letters at once, one
// requeues each letter, and messages of a key come in the order of their letters. It also skips letters that cannot be requeued; the
// error, which is [ErrStuck], names up to ten of them. Any other error ends it. RequeueAll fails with [ErrNotFound] if the filter names an outbox or a
// queue that does not exist.
func (a *Admin) RequeueAll(ctx context.Context, filter Filter, progress func(Progress), again ...Again) (int, error) {
	if err := errors.Join(filter.Validate(), filter.open("requeued")); err != nil {
		return 0, fmt.Errorf("admin: requeue dead letters: %w", invalid(err))
	}
	if err := a.known(ctx, filter.Target); err != nil {
		return 0, err
	}
	did, err := a.letters.RequeueAll(ctx, filter.chosen(), filter.Limit, filter.String(), the(again), reporting(progress))
	return a.didAll("requeue", "Postbox requeued dead letters", did, err)
}

// ResolveAll marks the unresolved dead letters that match the filter as dealt with, as [Admin.Resolve] does, and returns their number. Transactions,
// progress, limit and errors are those of [Admin.RequeueAll].
func (a *Admin) ResolveAll(ctx context.Context, filter Filter, reason string, progress func(Progress)) (int, error) {
	err := errors.Join(filter.Validate(), filter.open("resolved"))
	if strings.TrimSpace(reason) == "" {
		err = errors.Join(err, errNoReason)
	}
	if err != nil {
		return 0, fmt.Errorf("admin: resolve dead letters: %w", invalid(err))
	}
	if err := a.known(ctx, filter.Target); err != nil {
		return 0, err
	}
	did, err := a.letters.ResolveAll(ctx, filter.chosen(), filter.Limit, filter.String(), reason, reporting(progress))
	return a.didAll("resolve", "Postbox resolved dead letters", did, err)
}

// DeleteAll deletes the dead letters that match the filter, as [Admin.Delete] does, and returns their number. [Filter.Resolved] may have any
// value. If it is empty, a letter that another operator resolves meanwhile stays. Transactions, progress, limit and errors are those of
// [Admin.RequeueAll].
func (a *Admin) DeleteAll(ctx context.Context, filter Filter, progress func(Progress)) (int, error) {
	if err := filter.Validate(); err != nil {
		return 0, fmt.Errorf("admin: delete dead letters: %w", invalid(err))
	}
	if err := a.known(ctx, filter.Target); err != nil {
		return 0, err
	}
	did, err := a.letters.DeleteAll(ctx, filter.chosen(), filter.Limit, filter.String(), reporting(progress))
	return a.didAll("delete", "Postbox deleted dead letters", did, err)
}

// didAll logs what an action on many letters has done.
func (a *Admin) didAll(what, logged string, did Progress, err error) (int, error) {
	if did.Done > 0 {
		a.logger.Info(logged, watermill.LogFields{"count": did.Done})
	}
	if err != nil {
		return did.Done, failed(fmt.Errorf("%s dead letters: %w", what, err))
	}
	return did.Done, nil
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
func (b *bulk) run(ctx context.Context, filter dialect.DeadLetterFilter) (Progress, error) {
	progress, err := b.all(ctx, filter)
	if err != nil {
		err = errors.Join(err, b.letters.audit.Stopped(ctx, b.letters.db, b.act))
	}
	return progress, err
}

// all ignores letters that arrive after it began, because a requeued message may become
// a dead letter again. When ctx ends, it finishes the running transaction.
func (b *bulk) all(ctx context.Context, filter dialect.DeadLetterFilter) (Progress, error) {
	if err := b.letters.db.QueryRowContext(ctx, b.letters.statements.LastDeadLetter).Scan(&filter.UpTo); err != nil {
		return b.progress, spool.Wrap("find the last dead letter", err)
	}
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
			return b.progress, errors.Join(append(b.stuck, err)...)
		}
		if len(page) < filter.Limit || b.left() == 0 {
			break
		}
		filter.After = page[len(page)-1].ID
	}
	return b.progress, errors.Join(b.stuck...)
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
	err := spool.InTx(ctx, b.letters.db, b.letters.statements, func(tx *sql.Tx) error {
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
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrResolved): // another operator was faster
		return nil
	case errors.Is(err, ErrStuck):
		c.stuck = append(c.stuck, err)
		return nil
	default:
		return err
	}
}

// RequeueAll requeues the open letters that the filter selects, at most the given number (0: no
// limit). It skips letters that cannot be requeued as they are, and returns these as the error.
func (l *letterStore) RequeueAll(ctx context.Context, filter dialect.DeadLetterFilter, most int, chosen string, again Again, report func(Progress)) (Progress, error) {
	filter.Resolved = dialect.ResolvedNo
	b := &bulk{letters: l, act: audit.NewAct(audit.ActRequeue, filter.Spool).Choosing(chosen), most: most, report: report}
	b.one = func(ctx context.Context, tx *sql.Tx, id int64) (*spool.Spool, error) {
		return l.requeue(ctx, tx, id, again)
	}
	return b.run(ctx, filter)
}

// ResolveAll marks the open letters that the filter selects as dealt with.
func (l *letterStore) ResolveAll(ctx context.Context, filter dialect.DeadLetterFilter, most int, chosen, reason string, report func(Progress)) (Progress, error) {
	filter.Resolved = dialect.ResolvedNo
	b := &bulk{letters: l, act: audit.NewAct(audit.ActResolve, filter.Spool).Choosing(chosen).Noting(reason), most: most, report: report}
	b.one = func(ctx context.Context, tx *sql.Tx, id int64) (*spool.Spool, error) {
		return nil, l.resolve(ctx, tx, id, reason)
	}
	return b.run(ctx, filter)
}

// DeleteAll deletes the letters that the filter selects. If it selects open letters only, it leaves
// those that another operator resolves meanwhile.
func (l *letterStore) DeleteAll(ctx context.Context, filter dialect.DeadLetterFilter, most int, chosen string, report func(Progress)) (Progress, error) {
	b := &bulk{letters: l, act: audit.NewAct(audit.ActDelete, filter.Spool).Choosing(chosen), most: most, report: report}
	statement := l.statements.DeleteDeadLetter
	if filter.Resolved == dialect.ResolvedNo {
		statement = l.statements.RemoveDeadLetter
	}
	b.one = func(ctx context.Context, tx *sql.Tx, id int64) (*spool.Spool, error) {
		return nil, l.delete(ctx, tx, statement, id)
	}
	return b.run(ctx, filter)
}
