package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Target names an outbox, a queue of an inbox, or the history of an inbox, by [Outbox], [Queue] or
// [Inbox]. Targets can be compared.
type Target struct{ spool string }

// Outbox is the outbox with this name, such as "outbox", the usual one. No outbox has an empty
// name, or one that begins with "inbox " or "received:", as those of queues and inboxes do: methods
// return [ErrNotFound] for it, and a filter that names it is [ErrInvalid].
func Outbox(name string) Target { return Target{spool: spool.OutboxName(name)} }

// Queue is the queue of deferred messages with this name.
func Queue(name string) Target { return Target{spool: spool.QueuePrefix + name} }

// Inbox is the history of the inboxes of this consumer, which has the messages that they have
// handled: see middleware.InboxConfig. It has no messages that wait, so it can only be listed and
// replayed, and its [Settings.History] can be set.
func Inbox(consumer string) Target { return Target{spool: spool.InboxName(consumer)} }

// Name returns the name of the outbox or the queue, or of the consumer of the inbox.
func (t Target) Name() string {
	_, name := spool.Named(t.spool)
	return name
}

// IsQueue returns true for a queue, and false for an outbox and an inbox.
func (t Target) IsQueue() bool {
	kind, _ := spool.Named(t.spool)
	return kind == spool.KindQueue
}

// IsInbox returns true for an inbox.
func (t Target) IsInbox() bool {
	kind, _ := spool.Named(t.spool)
	return kind == spool.KindInbox
}

// String describes the target for people.
func (t Target) String() string { return described(t.spool) }

// check returns an error for a target that cannot exist.
func (t Target) check() error {
	if t != (Target{}) && !t.IsQueue() && !t.IsInbox() {
		if err := checkOutbox(t.Name()); err != nil {
			return fmt.Errorf("target: %w", err)
		}
	}
	return checkText("target", t.spool)
}

// checkOutbox refuses an empty name, and one that is reserved for queues and inboxes.
func checkOutbox(name string) error {
	if name == "" {
		return errors.New("an outbox has a name: give Outbox one, or leave the target out")
	}
	if strings.HasPrefix(name, spool.InboxPrefix) {
		return fmt.Errorf("outbox %.60q: names that begin with %q are reserved for the histories of inboxes: use another name, or Inbox(%.60q)",
			name, spool.InboxPrefix, strings.TrimPrefix(name, spool.InboxPrefix))
	}
	if strings.HasPrefix(name, spool.QueuePrefix) {
		return fmt.Errorf("outbox %.60q: names that begin with %q are reserved for the queues of an inbox: use another name, or Queue(%.60q)",
			name, spool.QueuePrefix, strings.TrimPrefix(name, spool.QueuePrefix))
	}
	return nil
}

// known returns [ErrNotFound] if a target is named that does not exist.
func (a *Admin) known(ctx context.Context, target Target) error {
	if target == (Target{}) {
		return nil
	}
	if err := a.operator.Known(ctx, target.spool); err != nil {
		return failed(err)
	}
	return nil
}
