package admin

import (
	"context"
	"slices"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin/internal/counts"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// CountedUpTo is the largest number of messages that is counted exactly, where counting is bounded.
// One more, 10,001, means that there are more than 10,000.
const CountedUpTo = counts.Cap

// QueueInfo is the state of an outbox, of a queue, or of the inboxes of one consumer, with the
// settings that operators have stored for it. Of inboxes only Target, Settings, Dead, Done and
// HasHistory are set.
type QueueInfo struct {
	Target Target
	// HasHistory tells of inboxes whether a history was ever kept. Without one, [Admin.Messages]
	// and [Admin.Replay] fail with [ErrNotFound].
	HasHistory bool
	// Processes is the number of forwarders or subscribers that drain it and have sent a heartbeat
	// within their lease.
	Processes int

	// Pause is that of the whole. Its Since is zero while it is not paused.
	Pause Paused
	// PausedKeys is the number of keys that are paused.
	PausedKeys int
	// PausedTopics is the number of topics that are paused; 0 for a queue.
	PausedTopics int
	// StuckKeys is the number of keys whose first message has failed and waits for its next
	// attempt, or is parked: see [Admin.StuckKeys]. Up to 1000 failed messages are looked at.
	StuckKeys int
	// StuckAge is how long ago the first of these failed for the first time, by the database's
	// clock; 0 if no key is stuck.
	StuckAge time.Duration
	// Outages are the topics for which a process sees an outage: the broker, or what the handler of
	// a queue needs, is away. They are those of the last heartbeat of each process, a few seconds
	// ago at most, by name, and at most 100 of each process. A queue has one topic, its name.
	Outages []Outage
	// Limits are those in force over all processes together. PerSecond and MaxConcurrent of Total
	// are what operators have stored, if Settings has the value: a stored one may be no limit, in
	// place of a configured one. The others are configured. They are those of the last heartbeat of
	// a process, a few seconds ago at most, and at most 100 of topics. Without a process that runs,
	// only what is stored is known.
	Limits postbox.Limits
	// LimitsDiffer tells whether processes are configured with different limits, as during a
	// deployment. Limits then has the smallest ones, although the highest ones hold.
	LimitsDiffer bool
	// Work is what its processes do with the messages, in words: the program, and for an outbox
	// what is published to. More than one entry means that services share it that have the same
	// name for it without meaning to, or that a deployment is under way: see Destination of
	// forwarder.Config.
	Work []string
	// LongCall is the call of all its processes that has not returned for longest, or nil while
	// none takes long. A handler that hangs shows here.
	LongCall *Call
	// Settings are what operators have stored.
	Settings Settings

	// Pending is the number of messages that are neither done nor dead. The following four are
	// parts of it, and overlap. These numbers are exact up to [CountedUpTo]; one above it says that
	// there are more.
	Pending int
	// Due is the number of messages that wait neither for the time that their producer asked for
	// nor for their next attempt. While no ready message of a queue with batches has waited until
	// the time of its batch, none of them is due.
	Due int
	// InFlight is the number of messages that were being handled at the last heartbeat of each
	// process, a few seconds ago at most, and never more than Pending: some may have been handled
	// since. Processes that stop do not count.
	InFlight int
	// Failing is the number of messages with a failed attempt.
	Failing int
	// Parked is the number of messages that have used up their attempts and wait for an operator.
	// Their keys wait, too.
	Parked int
	// Dead is the number of dead letters that no operator has resolved. Of more than CountedUpTo
	// letters, resolved or not, the latest are looked at: of inboxes, among those of all together.
	Dead int
	// DeadLately is the number of these that died in the last ten minutes.
	DeadLately int
	// Done is the number of messages in the history: 0 if none is kept.
	Done int

	// DueAge is for how long the oldest due message has been due, by the database's clock; 0
	// without one. A ready message is due since it was written; that of a queue with batches by age
	// or on a schedule, since the time of its batch, also while no process runs. A scheduled or
	// failed message is due since its time, or its next attempt, has come.
	DueAge time.Duration
	// OldestAge is how long ago the oldest pending message was written, by the database's clock; 0
	// if none is pending. It includes scheduled messages. Of messages that were written by
	// transactions at the same time, it may be that of another one than the first.
	OldestAge time.Duration
}

// Outage is a topic whose messages wait, without a counted attempt, until one of them gets through.
type Outage struct {
	Topic string `json:"topic"`
	// Since is when the first of the processes noticed, by its clock.
	Since time.Time `json:"since"`
	// Next is when a message tries next whether it is over, by the clock of the process that tries
	// first; zero if one may be trying. [Admin.Reschedule] lets a message try at once.
	Next time.Time `json:"next,omitzero"`
}

// Queues returns all outboxes and queues to which a message was ever written, or which a process
// has drained, and the consumers whose inboxes have unresolved dead letters or have ever kept a
// history. Outboxes come first, then queues, then inboxes, each sorted by name.
//
// The numbers of an outbox or a queue are counted at one moment. Queues executes ten statements and
// two for each history of an inbox, and on MySQL and MariaDB three more for each 25 outboxes and
// queues. It reads at most some 10,000 entries of an index for each number, however many messages
// there are, so it can be called every few seconds. On PostgreSQL it also reads index entries of
// deleted messages that vacuum has not removed yet.
func (a *Admin) Queues(ctx context.Context) ([]QueueInfo, error) {
	spools, err := a.operator.Overviews(ctx)
	if err != nil {
		return nil, failed(err)
	}
	queues := make([]QueueInfo, len(spools))
	for i, s := range spools {
		queues[i] = s.QueueInfo
	}
	inboxes, err := a.inboxes(ctx)
	if err != nil {
		return nil, err
	}
	return slices.Concat(queues, inboxes), nil
}

// Targets returns the outboxes and queues that [Admin.Queues] counts, and the inboxes that have
// ever kept a history, in the same order. It executes one statement, and counts no messages.
func (a *Admin) Targets(ctx context.Context) ([]Target, error) {
	spools, err := a.operator.spools(ctx)
	if err != nil {
		return nil, failed(spool.Wrap("list outboxes, queues and inboxes", err))
	}
	targets := make([]Target, len(spools))
	for i, s := range spools {
		targets[i] = s.Target
	}
	return targets, nil
}

// kind is the place of the kind of a target in lists.
func kind(target Target) int {
	switch target.Kind {
	case spool.KindInbox:
		return 2
	case spool.KindQueue:
		return 1
	default:
		return 0
	}
}

// Account is the balance of the messages of an outbox or a queue.
type Account struct {
	// Written is the sum of the others.
	Written int
	// Pending is the number of messages that are neither done nor dead.
	Pending int
	// Done is the number of messages in the history.
	Done int
	// Dead is the number of dead letters that no operator has resolved, and Resolved is the number
	// of the resolved ones.
	Dead, Resolved int
}

// Account counts all messages of an outbox or a queue in one statement, and so at one moment. While
// messages are handled, fail, are requeued or become dead letters, their sum stays the same.
//
// While a history is kept, Written is the number of messages that were written since its start. It
// does not include messages whose retention is over, or dead letters that were deleted. Without a
// history no row is left of a message that is done: then Done is 0, or the rest of an earlier
// history, and Written is the number of pending and dead messages.
//
// Account reads an index entry of each message, since a balance is of use only if it is exact: with
// millions of messages it takes seconds, and for a dashboard there is [Admin.Queues]. It fails with
// [ErrNotFound] if there is no outbox or queue of this name.
func (a *Admin) Account(ctx context.Context, target Target) (Account, error) {
	var found Account
	s, err := a.operator.find(ctx, target.stored())
	if err == nil {
		err = a.db.QueryRowContext(ctx, a.statements.Account, s.ID()).Scan(&found.Pending, &found.Done, &found.Dead, &found.Resolved)
	}
	if err != nil {
		return Account{}, failed(failedTo("count messages of", target.stored(), err))
	}
	found.Written = found.Pending + found.Done + found.Dead + found.Resolved
	return found, nil
}
