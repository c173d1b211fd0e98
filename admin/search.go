package admin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
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
		return Found{}, fmt.Errorf("admin: search messages of %s: %w", filter.Target, invalid(err))
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
		return FoundLetters{}, fmt.Errorf("admin: search dead letters: %w", invalid(err))
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
	if err != nil {
		return FoundEntries{}, failed(err)
	}
	return found, nil
}

// foundMessages is what a search has found.
type foundMessages struct {
	Messages []*storedMessage
	Looked   int            // how many messages were looked at
	Next     *dialect.Place // after which the next search begins; nil at the end of the list
}

// Search looks at so many pending messages after the place of the filter, in the order of
// [operator.Messages].
func (o *operator) Search(ctx context.Context, name string, filter dialect.MessageFilter, among int) (foundMessages, error) {
	const what = "search messages of"
	s, err := o.find(ctx, name)
	if err != nil {
		return foundMessages{}, failedTo(what, name, err)
	}
	var found foundMessages
	var last dialect.Place
	query := o.statements.Search(s.ID(), filter, among)
	// A message only moves forward in this order. So one that is pending all the while is before
	// the end when the search reads the messages there, or it is behind the end, where the next
	// search looks.
	if end, separate := o.statements.SearchEnd(s.ID(), filter, among); separate {
		err = o.db.QueryRowContext(ctx, end.Text, end.Args...).Scan(&found.Looked, &last.State, &last.Lane, &last.ID)
		if errors.Is(err, sql.ErrNoRows) {
			return foundMessages{}, nil
		}
		if err != nil {
			return foundMessages{}, failedTo(what, name, err)
		}
		query = o.statements.SearchUpTo(s.ID(), filter, last)
	}
	err = eachRow(ctx, o.db, query, func(rows *sql.Rows) error {
		m, looked := &storedMessage{}, 0
		err := m.scan(func(targets ...any) error { return rows.Scan(append([]any{&looked}, targets...)...) })
		if looked > 0 {
			found.Looked, last = looked, m.Place
		} else {
			found.Messages = append(found.Messages, m)
		}
		return err
	})
	if err != nil {
		return foundMessages{}, failedTo(what, name, err)
	}
	switch {
	case len(found.Messages) == filter.Limit: // there may be more before the last one that was looked at
		found.Next = &found.Messages[filter.Limit-1].Place
	case found.Looked == among:
		found.Next = &last
	}
	return found, nil
}

// foundStoredLetters is what a search among dead letters has found.
type foundStoredLetters struct {
	Letters []*storedLetter
	Looked  int   // how many letters were looked at
	Next    int64 // the id after which the next search begins; 0 at the end of the list
}

const (
	// maxSearched is how many dead letters the statement for a page looks at.
	maxSearched = 10_000
	// maxShaped is how many of them are read to find those with a shape: some 4 MB of errors.
	maxShaped = 1000
)

// Search looks at so many dead letters after the id of the filter, in the order of
// [letterStore.List].
func (l *letterStore) Search(ctx context.Context, filter dialect.DeadLetterFilter, among int) (found foundStoredLetters, err error) {
	query := l.statements.LetterSearchEnd(filter.After, among)
	var last int64
	err = l.db.QueryRowContext(ctx, query.Text, query.Args...).Scan(&found.Looked, &last)
	if err != nil {
		return foundStoredLetters{}, spool.Wrap("search dead letters", err)
	}
	if found.Looked == 0 {
		return foundStoredLetters{}, nil
	}
	if found.Looked == among && (filter.UpTo == 0 || last < filter.UpTo) {
		found.Next = last
	}
	if filter.UpTo == 0 || last < filter.UpTo {
		filter.UpTo = last
	}
	limit := filter.Limit
	if filter.Shape != "" {
		filter.Limit = max(limit, maxShaped)
	}
	page, err := l.page(ctx, filter)
	if err != nil {
		return foundStoredLetters{}, err
	}
	if len(page) == filter.Limit { // there may be more before the last one that was looked at
		found.Next = page[len(page)-1].ID
	}
	for _, letter := range page {
		if filter.Shape != "" && letter.Shape != filter.Shape {
			continue
		}
		if found.Letters = append(found.Letters, letter); len(found.Letters) == limit {
			found.Next = letter.ID
			break
		}
	}
	return found, nil
}

// SearchAudit looks at so many rows of the audit log before the id of the filter, in the order of
// [operator.Audit].
func (o *operator) SearchAudit(ctx context.Context, filter dialect.AuditFilter, among int) (found FoundEntries, err error) {
	end := o.statements.AuditSearchEnd(filter, among)
	err = o.db.QueryRowContext(ctx, end.Text, end.Args...).Scan(&found.Looked, &filter.Least)
	if err != nil {
		return FoundEntries{}, spool.Wrap("search the audit log", err)
	}
	if found.Entries, err = o.Audit(ctx, filter); err != nil {
		return FoundEntries{}, err
	}
	switch {
	case len(found.Entries) == filter.Limit: // there may be more before the last one that was looked at
		found.Next = found.Entries[filter.Limit-1].ID
	case found.Looked == among:
		found.Next = filter.Least
	}
	return found, nil
}
