package admin

import (
	"context"
	"fmt"

	"github.com/postbox-go/watermill-postbox/internal/operate"
)

// searchAmong is how many messages a search looks at: see docs/performance.md.
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
// As with Messages, no message is missed that is pending all the while. Search executes one statement, changes nothing, and is safe for concurrent use. It fails with
// [ErrNotFound] if there is no such outbox or queue.
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
