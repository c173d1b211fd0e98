package storetest

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
)

// CloseTimeout is the close timeout with which the store under test must be configured. It is how
// long a handler may continue after the context of its delivery has ended, and how long a
// subscriber that closes waits for messages that are not acked.
const CloseTimeout = 2 * time.Second

// concurrency is the number of messages that a subscriber under test must hand out at a time.
const concurrency = 8

// Features lists the features of a store. Cases that need a missing feature are skipped.
type Features struct {
	// Transactional: fn finds a *sql.Tx in its context, with [postbox.TxFromContext]. Its writes
	// through that transaction commit and roll back with the claim. Needs AddEffect and Effects of
	// the [Harness].
	Transactional bool
	// SharedBetweenProcesses: several handles work on the same data at a time. Needs Open of the
	// [Harness].
	SharedBetweenProcesses bool
	// Persistent: the data outlives the handle. Needs Open of the [Harness].
	Persistent bool
	// Delays: Defer applies the metadata of Watermill's components/delay.
	Delays bool
	// History: the store has the methods of middleware.HistoryStore. Needs History of the
	// [Harness].
	History bool
	// RefusesWhenClosed: after Close, Once, RecordFailure and Bury return [postbox.ErrClosed].
	// Defer must always do so.
	RefusesWhenClosed bool
}

// Handle is the store as one process sees it. The suite closes it, subscribers first.
type Handle struct {
	Store Store
	// Subscriber returns a new subscriber over the queues of the store. It retries messages as
	// retry says and hands out at least 8 of them at a time. Ack means done, Nack means
	// another attempt after a pause. It applies the errors that handlers pass to queue.Fail; for
	// this a store puts queue.ContextWithReport into messages.
	Subscriber func(t *testing.T, retry postbox.RetryProfile) message.Subscriber
}

// Harness is an empty store, with the functions that the suite needs to inspect it.
type Harness struct {
	Handle

	// Open returns another handle on the same data: while the first one is in use if the store is
	// SharedBetweenProcesses, otherwise after it was closed. It may be nil for a store that has
	// neither feature.
	Open func(t *testing.T) Handle

	// DeadLetters returns all dead letters, in the order in which they were buried.
	DeadLetters func(ctx context.Context) ([]DeadLetter, error)
	// Pending returns the messages of a queue that are neither done nor dead, in the order in which
	// they were stored.
	Pending func(ctx context.Context, queue string) ([]Pending, error)

	// History returns the received messages of a consumer that were kept, in the order in which
	// they were received. Nil unless the store has the feature.
	History func(ctx context.Context, consumer string) ([]Handled, error)

	// AddEffect writes through the transaction of a handler, as a handler would. Nil unless
	// Transactional.
	AddEffect func(ctx context.Context, tx *sql.Tx, effect string) error
	// Effects returns the committed writes of AddEffect, in any order. Nil unless Transactional.
	Effects func(ctx context.Context) ([]string, error)
}

// DeadLetter is a message that is not tried again until an operator decides so.
type DeadLetter struct {
	// Queue is the queue of the message; empty for a letter that Bury wrote.
	Queue string
	// Consumer and Topic are those of the key that Bury got. The suite ignores them if Queue is
	// set.
	Consumer, Topic string
	MessageID       string
	Payload         []byte
	Metadata        message.Metadata
	// Attempts is the number of attempts that failed.
	Attempts int
	// Error is the text of the last attempt's error.
	Error string
	// Failures are the texts of all recorded errors, oldest first.
	Failures []string
}

// Pending is a message in a queue.
type Pending struct {
	MessageID string
	// Attempts is the number of attempts that failed.
	Attempts int
}

// Run tests a store. It calls newStore for each case, and cases run in parallel. So each call
// returns an empty store of its own, configured with [CloseTimeout].
func Run(t *testing.T, features Features, newStore func(t *testing.T) Harness) {
	t.Helper()
	for _, c := range cases() {
		if c.needs != nil && !c.needs(features) {
			continue // a store is tested for the features that it declares
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newStore(t)
			h.check(t, features)
			t.Cleanup(func() { require.NoError(t, h.Store.Close()) })
			c.test(t, h)
		})
	}
}

// contractCase is one rule of the contract.
type contractCase struct {
	name  string
	needs func(Features) bool // nil if every store must pass it
	test  func(t *testing.T, h Harness)
}

func transactional(f Features) bool     { return f.Transactional }
func shared(f Features) bool            { return f.SharedBetweenProcesses }
func persistent(f Features) bool        { return f.Persistent }
func history(f Features) bool           { return f.History }
func delays(f Features) bool            { return f.Delays }
func refusesWhenClosed(f Features) bool { return f.RefusesWhenClosed }

// cases is the whole contract.
func cases() []contractCase {
	return []contractCase{
		{name: "a claim is fresh once", test: testFreshOnce},
		{name: "F2 an error leaves the claim free", test: testErrorLeavesTheClaimFree},
		{name: "F2 a panic leaves the claim free", test: testPanicLeavesTheClaimFree},
		{name: "F6 a second claim waits for the first", test: testSecondClaimWaits},
		{name: "F6 of many copies one is handled", test: testManyCopies},
		{name: "F6 a second claim waits for the first across handles", needs: shared, test: testClaimsAcrossHandles},
		{name: "a claim of the same key within fn is part of the first", test: testClaimWithinItself},
		{name: "F21 consumers and topics do not share claims", test: testScopes},
		{name: "F3 distinct ids are distinct messages", test: testDistinctIDs},
		{name: "F3 a key without an id is refused", test: testKeyWithoutID},
		{name: "a nil message or function is refused", test: testNil},

		{name: "only errors of fn are handler errors", test: testHandlerError},
		{name: "a context that has ended claims and stores nothing", test: testEndedContext},
		{name: "fn's context has the values of the delivery's context", test: testContextValues},
		{name: "G12 fn may end after its delivery was cancelled", test: testFnOutlivesDelivery},
		{name: "G12 fn's context ends with the close timeout", test: testFnIsCancelledInTheEnd},
		{name: "close can be called twice", test: testCloseTwice},
		{name: "a closed store defers no messages", test: testClosedQueues},
		{name: "a closed store returns ErrClosed", needs: refusesWhenClosed, test: testClosedInbox},

		{name: "G4 effect and claim commit together", needs: transactional, test: testEffectAndClaim},
		{name: "G4 of many copies one has an effect", needs: transactional, test: testManyCopiesOneEffect},
		{name: "G4 calls of the store within fn commit with it", needs: transactional, test: testStoreInsideFn},

		{name: "G4 received messages are kept in their order", needs: history, test: testHistoryInOrder},
		{name: "G4 a received message is kept with its claim", needs: history, test: testHistory},
		{name: "G4 of many copies one is kept", needs: history, test: testHistoryOfCopies},

		{name: "failures are counted by key", test: testFailuresAreCounted},
		{name: "F14 failures at the same instant are counted", test: testFailuresAtTheSameInstant},
		{name: "F14 failures are counted across handles", needs: shared, test: testFailuresAcrossHandles},
		{name: "a buried message is a claimed dead letter", test: testBury},
		{name: "bury changes nothing for a claimed message", test: testBuryLeavesWhatWasClaimed},
		{name: "F22 bury waits for a running handler", test: testBuryWaits},
		{name: "F22 a message is buried once", test: testBuryAtTheSameInstant},
		{name: "failures are kept although the context has ended", test: testFailureAfterCancel},
		{name: "any bytes survive as a dead letter", test: testBuryAnyBytes},

		{name: "G5 a message is deferred once", test: testDeferOnce},
		{name: "any bytes survive in a queue", test: testDeferAnyBytes},
		{name: "a deferred message is a copy", test: testDeferCopies},
		{name: "a deferred message keeps its UUID beside the key", test: testDeferKeepsUUID},
		{name: "a deferred message without a UUID gets one", test: testDeferWithoutUUID},
		{name: "queues do not wait for each other", test: testQueuesAreApart},
		{name: "a delayed message waits for its time", needs: delays, test: testDelay},
		{name: "G2 claims, failures and messages outlive the store", needs: persistent, test: testPersistence},

		{name: "G3 messages of a key run one at a time, others concurrently", test: testOneAtATimeByKey},
		{name: "G3 oldest first within a key", test: testOldestFirst},
		{name: "G3 oldest first with two processes", needs: shared, test: testOldestFirstAcrossHandles},
		{name: "a nacked message is delivered again unchanged", test: testNack},
		{name: "F11 a failing message holds back its key and nothing else", test: testFailingKeyWaits},
		{name: "a message without attempts left is dead and its key goes on", test: testDeadAfterAttempts},
		{name: "the failure record says why the handler failed", test: testFail},
		{name: "a permanent error is dead at once", test: testPermanent},
		{name: "RetryAfter sets the pause", test: testRetryAfter},
		{name: "F14 attempts are counted across subscriptions", test: testAttemptsAcrossSubscriptions},
		{name: "a message's context ends with its ack or nack", test: testContextEndsWithAck},
		{name: "F1 closing loses nothing", test: testCloseLosesNothing},
		{name: "F1 the end of the context loses nothing", test: testContextEndLosesNothing},
		{name: "G12 a message may be acked after its subscription ended", test: testAckAfterEnd},
		{name: "a closed subscriber returns ErrClosed", test: testCloseSubscriber},
	}
}

// check reports missing fields of a harness, instead of a panic in a case.
func (h Harness) check(t *testing.T, features Features) {
	t.Helper()
	require.NotNil(t, h.Store, "Harness.Store")
	require.NotNil(t, h.Subscriber, "Harness.Subscriber")
	require.NotNil(t, h.DeadLetters, "Harness.DeadLetters")
	require.NotNil(t, h.Pending, "Harness.Pending")
	if features.SharedBetweenProcesses || features.Persistent {
		require.NotNil(t, h.Open, "Harness.Open")
	}
	if features.History {
		require.NotNil(t, h.History, "Harness.History")
	}
	if features.Transactional {
		require.NotNil(t, h.AddEffect, "Harness.AddEffect")
		require.NotNil(t, h.Effects, "Harness.Effects")
	}
}
