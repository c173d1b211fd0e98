package admin

import (
	"context"
	"database/sql"
	"errors"

	"github.com/postbox-go/watermill-postbox/admin/internal/operatorsql"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// searchAmong is how many messages, dead letters or entries of the audit log a search looks at: see
// docs/dev/performance.md.
const searchAmong = 10_000

// foundMessages is what a search has found.
type foundMessages struct {
	Messages []*storedMessage
	Looked   int                // how many messages were looked at
	Next     *operatorsql.Place // after which the next search begins; nil at the end of the list
}

// Search looks at so many pending messages after the place of the filter, in the order of
// [operator.Messages].
func (o *operator) Search(ctx context.Context, name string, filter operatorsql.MessageFilter, among int) (foundMessages, error) {
	const what = "list messages of"
	s, err := o.find(ctx, name)
	if err != nil {
		return foundMessages{}, failedTo(what, name, err)
	}
	var found foundMessages
	var last operatorsql.Place
	query := o.statements.Search(s.ID(), filter, among)
	// A message only moves forward in this order. So one that is pending all the while is before
	// the end when the search reads the messages there, or it is behind the end, where the next
	// search looks. After the last search there is none: it reads all that is there.
	if end, separate := o.statements.SearchEnd(s.ID(), filter, among); separate {
		err = o.db.QueryRowContext(ctx, end.Text, end.Args...).Scan(&found.Looked, &last.State, &last.Lane, &last.ID)
		if errors.Is(err, sql.ErrNoRows) {
			return foundMessages{}, nil
		}
		if err != nil {
			return foundMessages{}, failedTo(what, name, err)
		}
		if found.Looked < among {
			last = operatorsql.Place{State: filter.States[1], Lane: dialect.Lanes}
		}
		query = o.statements.SearchUpTo(s.ID(), filter, last)
	}
	err = spool.Each(ctx, o.db, query, func(scan spool.Scan) error {
		m, looked := &storedMessage{}, 0
		err := m.scan(func(targets ...any) error { return scan(append([]any{&looked}, targets...)...) })
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
	Next    int64 // the id behind which the next search begins; 0 at the end of the list
}

const (
	// maxSearched is how many dead letters the statement for a page looks at.
	maxSearched = 10_000
	// maxShaped is how many of them are read to find those with a shape: some 4 MB of errors.
	maxShaped = 1000
)

// ends returns how many of so many dead letters there are within the bounds of a filter, in its
// order, and the lowest and the highest id of these.
func (l *letterStore) ends(ctx context.Context, filter operatorsql.DeadLetterFilter, among int) (n int, low, high int64, err error) {
	query := l.statements.LetterEnds(filter, among)
	err = l.db.QueryRowContext(ctx, query.Text, query.Args...).Scan(&n, &low, &high)
	return n, low, high, err
}

// Search looks at so many dead letters from the beginning of the filter on, in its order.
func (l *letterStore) Search(ctx context.Context, filter operatorsql.DeadLetterFilter, among int) (found foundStoredLetters, err error) {
	var low, last int64
	if found.Looked, low, last, err = l.ends(ctx, filter, among); err != nil {
		return foundStoredLetters{}, spool.Wrap("list dead letters", err)
	}
	if found.Looked == 0 {
		return foundStoredLetters{}, nil
	}
	if filter.NewestFirst {
		filter.After, last = low-1, low
	} else {
		filter.UpTo = last
	}
	if found.Looked == among {
		found.Next = last
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

// SearchAudit looks at so many rows of the audit log before the id of the filter, and returns those
// that match, the latest first, and the id before which the next search begins, 0 at the end.
func (o *operator) SearchAudit(ctx context.Context, filter operatorsql.AuditFilter, among int) (entries []AuditEntry, next int64, err error) {
	var looked int
	end := o.statements.AuditSearchEnd(filter, among)
	err = o.db.QueryRowContext(ctx, end.Text, end.Args...).Scan(&looked, &filter.Least)
	if err != nil {
		return nil, 0, spool.Wrap("read the audit log", err)
	}
	if entries, err = o.Audit(ctx, filter); err != nil {
		return nil, 0, err
	}
	switch {
	case len(entries) == filter.Limit: // there may be more before the last one that was looked at
		next = entries[filter.Limit-1].ID
	case looked == among:
		next = filter.Least
	}
	return entries, next, nil
}
