package admin

import (
	"context"
	"time"
)

// InboxInfo is the state of the inboxes of one consumer.
type InboxInfo struct {
	Consumer string
	// Dead is the number of dead letters that no operator has resolved, and Accuracy says how it was found.
	Dead     int
	Accuracy Accuracy
	// HasHistory tells whether a history was ever kept. Without one, [Admin.Done] and [Admin.Replay] fail with [ErrNotFound].
	HasHistory bool
	// Done is the number of messages in the history, 0 if none is kept, and DoneAccuracy says how it was found. [Admin.Done] lists them, for the
	// target [Inbox].
	Done         int
	DoneAccuracy Accuracy
	// CountedAge is how long ago those numbers that are [Counted] were counted, by the database's clock; the age of the older one if they differ, and 0
	// without one.
	CountedAge time.Duration
	// Settings are what operators have stored. Only History has an effect.
	Settings Settings
}

// Inboxes returns the consumers whose inboxes have unresolved dead letters or have ever kept a history, by name. It executes two statements for
// each history, and four others. It reads at most some 10,000 entries of an index for each number, however many there are.
func (a *Admin) Inboxes(ctx context.Context) ([]InboxInfo, error) {
	found, err := a.operator.Inboxes(ctx)
	if err != nil {
		return nil, failed(err)
	}
	inboxes := make([]InboxInfo, len(found))
	for i, in := range found {
		inboxes[i] = InboxInfo{
			Consumer: in.Consumer, Dead: in.Dead.N, Accuracy: Accuracy(in.Dead.Accuracy), HasHistory: in.Kept,
			Done: in.Done.N, DoneAccuracy: Accuracy(in.Done.Accuracy), CountedAge: in.CountedAge, Settings: Settings(in.Settings),
		}
	}
	return inboxes, nil
}
