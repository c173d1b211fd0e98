package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/given"
	"github.com/postbox-go/watermill-postbox/internal/inbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Defaults of the settings in [Config], which explains them.
const (
	defaultConcurrency      = 16
	defaultMaxAttempts      = 15
	defaultPageSize         = 2000
	defaultMaxBytesInFlight = 64 << 20
	defaultPollMin          = 5 * time.Millisecond
	defaultPollMax          = time.Second
	defaultLease            = 15 * time.Second
	defaultProbeMin         = 100 * time.Millisecond
	defaultProbeMax         = 30 * time.Second
)

// maxConcurrency is as in admin.Settings.
const maxConcurrency = 10_000

// Mode says what the messages of a queue have to do with each other.
type Mode int

const (
	// Sequential handles messages with the same ordering key one at a time, oldest first, across all processes; keys
	// run side by side, and so do messages without a key.
	Sequential Mode = iota
	// Single handles each message by itself, whatever its key.
	Single
)

// HeadPolicy says what becomes of a key whose oldest message keeps failing. While that message has attempts left, its
// key waits in any case, and other keys do not.
type HeadPolicy int

const (
	// SkipHead moves the message to the dead letters after its last attempt, and its key goes on.
	SkipHead HeadPolicy = iota
	// BlockOnHead tries the message for ever, as the retry profile paces it, and its key waits until it succeeds. Only a
	// [postbox.Permanent] error moves it to the dead letters.
	BlockOnHead
	// ParkHead leaves the message where it is after its last attempt, or a permanent error, and its key with it, until
	// an operator decides: admin.ResumeKey gives it all its attempts again, admin.Bury makes it a dead letter.
	ParkHead
)

// RuleParams is what a rule is given.
type RuleParams struct {
	Queue   string
	Message *message.Message
	// Err is what the handler returned, or a panic with its stack.
	Err error
	// Attempt is the number of the attempt that failed, counted from 1.
	Attempt int
}

// DeadParams tells of a message that became a dead letter.
type DeadParams struct {
	Queue    string
	Message  *message.Message
	Err      error
	Attempts int
}

// Config says how a queue is worked off. Operators can change some of it for all processes, see admin.SetSettings.
type Config struct {
	// Mode is [Sequential] unless it is set to [Single].
	Mode Mode
	// Head is what happens to a key whose oldest message keeps failing. Defaults to [SkipHead].
	Head HeadPolicy

	// Concurrency is the number of handlers at a time in this process. Defaults to 16, for batches to 1.
	Concurrency int
	// PageSize is the number of messages to read at once; up to three times as many are held in memory, each with its
	// payload when that is small. Defaults to 2000, for batches to at least their size.
	PageSize int
	// MaxBytesInFlight bounds the payloads, with their metadata, that handlers of this process hold in memory and that did not
	// come with a page: those above 16 KiB, which are loaded one by one. One that is larger than the bound is
	// handled alone, and a batch has fewer messages rather than more bytes. A page holds at most half as much; with larger
	// pages the 16 KiB shrink. Each handler gets a copy, since it may change it, so the memory is twice that at most. In bytes; defaults to 64 MiB.
	MaxBytesInFlight int
	// PollMin and PollMax bound the pause between two looks that find nothing; it doubles from one to the other. Polling
	// is what finds messages for sure, wake-ups are what makes it fast. Default to 5 ms and 1 s.
	PollMin, PollMax time.Duration
	// ListenDSN is where lib/pq shall LISTEN for wake-ups from other processes, on PostgreSQL; it takes one connection.
	// Defaults to none: what other processes store is found by polling.
	ListenDSN string
	// Lease is how long the lanes of a crashed process stay its own. It follows the life of the process, not the length
	// of a handler, which may take hours. Defaults to 15 s.
	Lease time.Duration

	// Transactional gives the handler a transaction, which [postbox.TxFromContext] finds in the message's context. What
	// it writes there, the messages it publishes through an outbox, and the end of the message commit together, so the
	// message has its effect once. Without it a message is handled at least once. A pool needs a connection for each
	// handler at work, and one more, to renew the lease while they all work; with fewer it still is
	// correct: a message whose lease was lost is rolled back, and handled again.
	Transactional bool
	// MicroBatch is how many messages are handled in one transaction, one after the other, to share its commit. When
	// one of them fails, all are rolled back and handled one by one, so their handlers run twice. Implies
	// Transactional. Defaults to 1.
	MicroBatch int
	// HandlerTimeout cancels the context of a handler that takes longer. It is waited for all the same. Defaults to
	// none.
	HandlerTimeout time.Duration

	// Retry says how often and after which pauses a message is handled again. Defaults to 15 attempts, from 1 s to 60 s
	// apart.
	Retry postbox.RetryProfile
	// Rule decides by the error: what it returns is taken instead, so [postbox.Permanent] makes the message a dead
	// letter, [postbox.RetryAfter] sets the pause, nil makes it done. Defaults to the error as it is.
	Rule func(RuleParams) error
	// Classify finds outages: of a service that the handler needs, say. After one, the queue waits, is probed with one
	// message, another one each time, and no attempt counts. Defaults to outages of the queue's database alone, which is asked on
	// another connection whether it is there; [postbox.ClassifyNetwork] is for
	// handlers all of whose calls go to the same place, since one bad address would stop them all.
	Classify postbox.Classifier
	// ProbeMin and ProbeMax bound the pause after which a queue in an outage is tried again; it grows from one to the
	// other. Default to 100 ms and 30 s.
	ProbeMin, ProbeMax time.Duration

	// OnDead is called after a message has become a dead letter, in a goroutine of its own. It is for alarms: a crash
	// may lose the call. Close waits for it up to the store's close timeout, then ends its context, and after two more seconds returns without it.
	OnDead func(ctx context.Context, params DeadParams)
	// PoisonOutbox and PoisonTopic, if set, publish each dead letter too, with the metadata of Watermill's PoisonQueue.
	// It must be the publisher of an outbox, which writes in the transaction that buries the message. While it does not take a dead letter, its key waits.
	PoisonOutbox message.Publisher
	PoisonTopic  string

	// History is how long messages that are done are kept, for people and for accounts. Defaults to not at all.
	History time.Duration
}

func (c *Config) setDefaults() {
	c.Concurrency = cmp.Or(c.Concurrency, defaultConcurrency)
	c.MicroBatch = cmp.Or(c.MicroBatch, 1)
	c.Transactional = c.Transactional || c.MicroBatch > 1
	c.PageSize = cmp.Or(c.PageSize, max(defaultPageSize, c.MicroBatch))
	c.MaxBytesInFlight = cmp.Or(c.MaxBytesInFlight, defaultMaxBytesInFlight)
	c.PollMin = cmp.Or(c.PollMin, defaultPollMin)
	c.PollMax = cmp.Or(c.PollMax, max(defaultPollMax, c.PollMin))
	c.Lease = cmp.Or(c.Lease, defaultLease)
	c.Retry = c.Retry.WithDefaults(defaultMaxAttempts)
	c.ProbeMin = cmp.Or(c.ProbeMin, defaultProbeMin)
	c.ProbeMax = cmp.Or(c.ProbeMax, max(defaultProbeMax, c.ProbeMin))
	if c.Rule == nil {
		c.Rule = func(p RuleParams) error { return p.Err }
	}
	if c.Classify == nil {
		c.Classify = func(error) postbox.ErrorClass { return postbox.Unclassified }
	}
}

// validate returns all that is wrong with the configuration.
func (c Config) validate() error {
	var problems []error
	for _, count := range []struct {
		name string
		n    int
	}{{"Concurrency", c.Concurrency}, {"PageSize", c.PageSize}, {"MicroBatch", c.MicroBatch}, {"MaxBytesInFlight", c.MaxBytesInFlight}} {
		if count.n < 1 {
			problems = append(problems, fmt.Errorf("%s: %d is not positive", count.name, count.n))
		}
	}
	for _, span := range []struct {
		name        string
		least, most time.Duration
	}{{"Poll", c.PollMin, c.PollMax}, {"Probe", c.ProbeMin, c.ProbeMax}} {
		if span.least <= 0 || span.least > span.most {
			problems = append(problems, fmt.Errorf("%sMin and %sMax: %s and %s are not positive and in order", span.name, span.name, span.least, span.most))
		}
	}
	if c.Concurrency > maxConcurrency {
		problems = append(problems, fmt.Errorf("Concurrency: %d is more than %d: each is a goroutine, and in a transaction a connection", c.Concurrency, maxConcurrency))
	}
	if c.Mode < Sequential || c.Mode > Single || c.Head < SkipHead || c.Head > ParkHead {
		problems = append(problems, fmt.Errorf("Mode, Head: %d and %d are not both among the constants of this package", c.Mode, c.Head))
	}
	if c.PageSize < c.MicroBatch {
		problems = append(problems, fmt.Errorf("MicroBatch: %d is more than PageSize, %d", c.MicroBatch, c.PageSize))
	}
	if c.Lease < time.Second {
		problems = append(problems, fmt.Errorf("Lease: %s is less than a second, which a slow moment of the database may last", c.Lease))
	}
	if c.HandlerTimeout < 0 || c.History < 0 {
		problems = append(problems, errors.New("HandlerTimeout and History: negative"))
	}
	if (c.PoisonOutbox == nil) != (c.PoisonTopic == "") {
		problems = append(problems, errors.New("PoisonOutbox and PoisonTopic: set both or none"))
	}
	if err := given.Outbox(c.PoisonOutbox); err != nil {
		problems = append(problems, fmt.Errorf("PoisonOutbox: %w", err))
	}
	if err := c.Retry.Validate(); err != nil {
		problems = append(problems, fmt.Errorf("Retry: %w", err))
	}
	return errors.Join(problems...)
}

// drainer returns the engine's form of the configuration.
func (c Config) drainer(core *inbox.Core) drain.Config {
	process := spool.ProcessName()
	return drain.Config{
		Holder: process + " " + postbox.NewMessageID(), Process: process,
		PageSize: c.PageSize, InlineBytes: drain.InlineBytes, MaxBytes: c.MaxBytesInFlight,
		Workers: c.Concurrency, BatchSize: c.MicroBatch,
		PollMin: c.PollMin, PollMax: c.PollMax, Lease: c.Lease, Renew: c.Lease / drain.LeaseRenewals,
		Retry: c.Retry, Head: drain.HeadPolicy(c.Head), Unordered: c.Mode == Single, History: c.History,
		Close: core.CloseTimeout, Local: true,
		Unprepared: core.Prepared == nil,
	}
}
