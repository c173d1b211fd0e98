package admin

import (
	"strings"

	"github.com/postbox-go/watermill-postbox/internal/operate"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Target names an outbox or a queue of an inbox, by [Outbox] or [Queue]. Targets can be compared.
type Target struct{ spool string }

// Outbox is the outbox with this name, such as "outbox", the usual one.
func Outbox(name string) Target { return Target{spool: name} }

// Queue is the queue of deferred messages with this name.
func Queue(name string) Target { return Target{spool: spool.QueuePrefix + name} }

// Name returns the name of the outbox or the queue.
func (t Target) Name() string { return strings.TrimPrefix(t.spool, spool.QueuePrefix) }

// IsQueue returns true for a queue and false for an outbox.
func (t Target) IsQueue() bool { return strings.HasPrefix(t.spool, spool.QueuePrefix) }

// String describes the target for people.
func (t Target) String() string { return operate.Described(t.spool) }

func (t Target) check() error { return checkText("target", t.spool) }
