package admin

import (
	"context"
	"fmt"
	"strings"

	"github.com/postbox-go/watermill-postbox/internal/operate"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Target names an outbox or a queue of an inbox, by [Outbox] or [Queue]. Targets can be compared.
type Target struct{ spool string }

// Outbox is the outbox with this name, such as "outbox", the usual one. Names that begin with "inbox " are reserved for queues, so there is no such
// outbox: methods return [ErrNotFound] for it, and a filter that names it is [ErrInvalid].
func Outbox(name string) Target { return Target{spool: spool.OutboxName(name)} }

// Queue is the queue of deferred messages with this name.
func Queue(name string) Target { return Target{spool: spool.QueuePrefix + name} }

// Name returns the name of the outbox or the queue.
func (t Target) Name() string {
	_, name := spool.Named(t.spool)
	return name
}

// IsQueue returns true for a queue and false for an outbox.
func (t Target) IsQueue() bool {
	kind, _ := spool.Named(t.spool)
	return kind == spool.KindQueue
}

// String describes the target for people.
func (t Target) String() string { return operate.Described(t.spool) }

// check returns an error for a target that cannot exist.
func (t Target) check() error {
	if !t.IsQueue() {
		if err := checkOutbox(t.Name()); err != nil {
			return fmt.Errorf("target: %w", err)
		}
	}
	return checkText("target", t.spool)
}

// checkOutbox refuses a name that is reserved for queues.
func checkOutbox(name string) error {
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
