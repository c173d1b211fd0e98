package operate

import (
	"context"
	"database/sql"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
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
	var last *dialect.Place
	q := o.statements.Search(s.ID(), filter, among)
	err = eachRow(ctx, o.db, q, func(rows *sql.Rows) error {
		m, looked := &Listed{}, 0
		err := m.scan(func(targets ...any) error { return rows.Scan(append([]any{&looked}, targets...)...) })
		if looked > 0 {
			found.Looked, last = looked, &m.Place
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
		found.Next = last
	}
	return found, nil
}
