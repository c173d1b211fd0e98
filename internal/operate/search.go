package operate

import (
	"context"
	"database/sql"
	"errors"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Found is what a search has found.
type Found struct {
	Messages []*Listed
	Looked   int            // how many messages were looked at
	Next     *dialect.Place // after which the next search begins; nil at the end of the list
}

// Search looks at so many pending messages after the place of the filter, in the order of [Operator.Messages].
func (o *Operator) Search(ctx context.Context, name string, filter dialect.MessageFilter, among int) (Found, error) {
	const what = "search messages of"
	s, err := o.find(ctx, name)
	if err != nil {
		return Found{}, failedTo(what, name, err)
	}
	var found Found
	var last dialect.Place
	query := o.statements.Search(s.ID(), filter, among)
	// A message only moves forward in this order. So one that is pending all the while is before the end when the search reads the messages there, or it is
	// behind the end, where the next search looks.
	if end, separate := o.statements.SearchEnd(s.ID(), filter, among); separate {
		err = o.db.QueryRowContext(ctx, end.Text, end.Args...).Scan(&found.Looked, &last.State, &last.Lane, &last.ID)
		if errors.Is(err, sql.ErrNoRows) {
			return Found{}, nil
		}
		if err != nil {
			return Found{}, failedTo(what, name, err)
		}
		query = o.statements.SearchUpTo(s.ID(), filter, last)
	}
	err = eachRow(ctx, o.db, query, func(rows *sql.Rows) error {
		m, looked := &Listed{}, 0
		err := m.scan(func(targets ...any) error { return rows.Scan(append([]any{&looked}, targets...)...) })
		if looked > 0 {
			found.Looked, last = looked, m.Place
		} else {
			found.Messages = append(found.Messages, m)
		}
		return err
	})
	if err != nil {
		return Found{}, failedTo(what, name, err)
	}
	switch {
	case len(found.Messages) == filter.Limit: // there may be more before the last one that was looked at
		found.Next = &found.Messages[filter.Limit-1].Place
	case found.Looked == among:
		found.Next = &last
	}
	return found, nil
}

// FoundLetters is what a search among dead letters has found.
type FoundLetters struct {
	Letters []*DeadLetter
	Looked  int   // how many letters were looked at
	Next    int64 // the id after which the next search begins; 0 at the end of the list
}

const (
	// maxSearched is how many dead letters the statement for a page looks at.
	maxSearched = 10_000
	// maxShaped is how many of them are read to find those with a shape: some 4 MB of errors.
	maxShaped = 1000
)

// Search looks at so many dead letters after the id of the filter, in the order of [Letters.List].
func (l *Letters) Search(ctx context.Context, filter dialect.DeadLetterFilter, among int) (found FoundLetters, err error) {
	query := l.statements.LetterSearchEnd(filter.After, among)
	var last int64
	err = l.db.QueryRowContext(ctx, query.Text, query.Args...).Scan(&found.Looked, &last)
	if err != nil {
		return FoundLetters{}, spool.Wrap("search dead letters", err)
	}
	if found.Looked == 0 {
		return FoundLetters{}, nil
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
		return FoundLetters{}, err
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

// FoundEntries is what a search of the audit log has found.
type FoundEntries struct {
	Entries []AuditEntry
	Looked  int   // how many rows were looked at
	Next    int64 // the id before which the next search begins; 0 at the end of the list
}

// SearchAudit looks at so many rows of the audit log before the id of the filter, in the order of [Operator.Audit].
func (o *Operator) SearchAudit(ctx context.Context, filter dialect.AuditFilter, among int) (found FoundEntries, err error) {
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
