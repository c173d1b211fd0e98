package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/postbox-go/watermill-postbox/internal/operate"
)

// searchAmong is how many messages, dead letters or entries of the audit log a search looks at: see docs/performance.md.
const searchAmong = 10_000

// Found is what [Admin.Search] has found.
type Found struct {
	Messages []Message
	// Looked is the number of messages that the search has looked at, at most 10,000.
	Looked int
	// Next is where the next search begins, as [MessageFilter.After]. It is empty at the end of the list.
	Next Cursor
}

// Search is [Admin.Messages] for a page that must come soon, however long the list is: it looks at up to 10,000 pending messages after [MessageFilter.After], and
// returns those that match, up to the limit. If few messages match, it may find none, and the list goes on all the same, after [Found.Next]. Messages
// looks on until it has filled its page, which may take minutes with millions of messages.
//
// As with Messages, no message is missed that is pending all the while. Search executes two statements, on MariaDB three, changes nothing, and is safe for concurrent use. It
// fails with [ErrNotFound] if there is no such outbox or queue.
func (a *Admin) Search(ctx context.Context, filter MessageFilter) (Found, error) {
	chosen, err := filter.page()
	if err != nil {
		return Found{}, fmt.Errorf("admin: search messages of %s: %w", filter.Target, operate.Invalid(err))
	}
	found, err := a.operator.Search(ctx, filter.Target.spool, chosen, searchAmong)
	messages, err := publicMessages(found.Messages, err)
	if err != nil {
		return Found{}, err
	}
	public := Found{Messages: messages, Looked: found.Looked}
	if found.Next != nil {
		public.Next = cursorOf(*found.Next)
	}
	return public, nil
}

// FoundLetters is what [Admin.SearchDeadLetters] has found.
type FoundLetters struct {
	DeadLetters []DeadLetter
	// Looked is the number of dead letters that the search has looked at, at most 10,000.
	Looked int
	// Next is where the next search begins, as [Filter.After]. It is 0 at the end of the list.
	Next int64
}

// SearchDeadLetters is [Admin.DeadLetters] for a page that must come soon, however many dead letters there are: it looks at up to 10,000 of them after
// [Filter.After], and returns those that match, up to the limit. If few match, it may find none, and the list goes on all the same, after
// [FoundLetters.Next].
//
// SearchDeadLetters executes up to three statements, changes nothing, and is safe for concurrent use. It fails with [ErrNotFound] if the filter names an
// outbox or a queue that does not exist.
func (a *Admin) SearchDeadLetters(ctx context.Context, filter Filter) (FoundLetters, error) {
	if err := errors.Join(filter.Validate(), filter.listable()); err != nil {
		return FoundLetters{}, fmt.Errorf("admin: search dead letters: %w", operate.Invalid(err))
	}
	if err := a.known(ctx, filter.Target); err != nil {
		return FoundLetters{}, err
	}
	found, err := a.letters.Search(ctx, filter.page(), searchAmong)
	letters, err := publicLetters(found.Letters, err)
	return FoundLetters{DeadLetters: letters, Looked: found.Looked, Next: found.Next}, err
}

// FoundEntries is what [Admin.SearchAudit] has found.
type FoundEntries struct {
	Entries []AuditEntry
	// Looked is the number of entries that the search has looked at, at most 10,000.
	Looked int
	// Next is where the next search begins, as [AuditFilter.Before]. It is 0 at the end of the list.
	Next int64
}

// SearchAudit is [Admin.Audit] for a page that must come soon, however long the audit log is: it looks at up to 10,000 entries before [AuditFilter.Before],
// and returns those that match, up to the limit. If few match, it may find none, and the list goes on all the same, before [FoundEntries.Next].
func (a *Admin) SearchAudit(ctx context.Context, filter AuditFilter) (FoundEntries, error) {
	chosen, err := a.auditFilter(ctx, filter)
	if err != nil {
		return FoundEntries{}, err
	}
	found, err := a.operator.SearchAudit(ctx, chosen, searchAmong)
	entries, err := publicEntries(found.Entries, err)
	return FoundEntries{Entries: entries, Looked: found.Looked, Next: found.Next}, err
}
