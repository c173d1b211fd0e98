package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Target names an outbox, a queue of an inbox, or the history of an inbox: [Outbox], [Queue] and
// [Inbox] make one. Targets can be compared. The zero value names nothing.
type Target struct {
	// Kind is "outbox", "queue" or "inbox".
	Kind string `json:"kind"`
	// Name is that of the outbox or the queue, or the consumer of the inbox.
	Name string `json:"name"`
}

// Outbox is the outbox with this name, such as "outbox", the usual one. No outbox has an empty
// name, or one that begins with "inbox " or "received:", as those of queues and inboxes do: methods
// return [ErrNotFound] for it, and a filter that names it is [ErrInvalid].
func Outbox(name string) Target { return Target{Kind: spool.KindOutbox, Name: name} }

// Queue is the queue of deferred messages with this name.
func Queue(name string) Target { return Target{Kind: spool.KindQueue, Name: name} }

// Inbox is the history of the inboxes of this consumer, which has the messages that they have
// handled: see middleware.InboxConfig. It has no messages that wait, so it can only be listed and
// replayed, and its [Settings.History] can be set.
func Inbox(consumer string) Target { return targetOf(spool.InboxName(consumer)) }

// String describes the target for people.
func (t Target) String() string {
	if t == (Target{}) {
		return "no target"
	}
	return fmt.Sprintf("%s %.300q", t.Kind, t.Name)
}

// targetOf returns the target of a name in the database, which is empty for none.
func targetOf(stored string) Target {
	if stored == "" || stored == noKind {
		return Target{}
	}
	kind, name := spool.Named(stored)
	return Target{Kind: kind, Name: name}
}

// described describes a name in the database for people.
func described(stored string) string { return targetOf(stored).String() }

// noKind stands for the name in the database of a target that has none. No spool has such a name.
const noKind = "\x00kind"

// stored returns the name in the database.
func (t Target) stored() string {
	switch {
	case t == (Target{}):
		return ""
	case t.Kind == spool.KindOutbox:
		return spool.OutboxName(t.Name)
	case t.Kind == spool.KindQueue:
		return spool.QueuePrefix + t.Name
	case t.Kind == spool.KindInbox:
		return spool.InboxName(t.Name)
	default:
		return noKind
	}
}

var (
	errNoTarget = errors.New(`target: it is missing: name one, such as Outbox("outbox"), Queue("mail") or Inbox("billing")`)
	errNoKind   = errors.New("target: its kind is not outbox, queue or inbox: make it with Outbox, Queue or Inbox")
)

// checkNamed refuses a name in the database of a target that was forgotten, or is of no kind.
func checkNamed(stored string) error {
	switch stored {
	case "":
		return invalid(errNoTarget)
	case noKind:
		return invalid(errNoKind)
	default:
		return nil
	}
}

// check returns an error for a target that cannot exist. The zero value is none.
func (t Target) check() error {
	if t.stored() == noKind {
		return errNoKind
	}
	if t.Kind == spool.KindOutbox {
		if err := checkOutbox(t.Name); err != nil {
			return fmt.Errorf("target: %w", err)
		}
	}
	return checkText("target", t.Name)
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
	if err := a.operator.Known(ctx, target.stored()); err != nil {
		return failed(err)
	}
	return nil
}
