package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/operate"
)

// RequeueAll requeues the unresolved dead letters that match the filter, in the order of their ids, and returns
// their number. [Filter.Limit] is the largest number to requeue, 0 for all; [Filter.Resolved] must be [ResolvedNo].
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
		return 0, fmt.Errorf("admin: requeue dead letters: %w", operate.Invalid(err))
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
		return 0, fmt.Errorf("admin: resolve dead letters: %w", operate.Invalid(err))
	}
	if err := a.known(ctx, filter.Target); err != nil {
		return 0, err
	}
	did, err := a.letters.ResolveAll(ctx, filter.chosen(), filter.Limit, filter.String(), reason, reporting(progress))
	return a.didAll("resolve", "Postbox resolved dead letters", did, err)
}

// DeleteAll deletes the dead letters that match the filter, as [Admin.Delete] does, and returns their number. [Filter.Resolved] may have any
// value. With [ResolvedNo], a letter that another operator resolves meanwhile stays. Transactions, progress, limit and errors are those of
// [Admin.RequeueAll].
func (a *Admin) DeleteAll(ctx context.Context, filter Filter, progress func(Progress)) (int, error) {
	if err := filter.Validate(); err != nil {
		return 0, fmt.Errorf("admin: delete dead letters: %w", operate.Invalid(err))
	}
	if err := a.known(ctx, filter.Target); err != nil {
		return 0, err
	}
	did, err := a.letters.DeleteAll(ctx, filter.chosen(), filter.Limit, filter.String(), reporting(progress))
	return a.didAll("delete", "Postbox deleted dead letters", did, err)
}

// didAll logs what an action on many letters has done.
func (a *Admin) didAll(what, logged string, did operate.Progress, err error) (int, error) {
	if did.Done > 0 {
		a.logger.Info(logged, watermill.LogFields{"count": did.Done})
	}
	if err != nil {
		return did.Done, failed(fmt.Errorf("%s dead letters: %w", what, err))
	}
	return did.Done, nil
}
