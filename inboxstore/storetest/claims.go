package storetest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
)

// The first claim of a key finds it fresh. From then on each claim is a duplicate, which is no
// error, and fn does not run.
func testFreshOnce(t *testing.T, h Harness) {
	ran := 0
	for i := range 4 {
		fresh, err := h.Store.Once(patient(t), keyOf("1"), func(context.Context) error {
			ran++
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, i == 0, fresh, "call %d", i+1)
	}
	require.Equal(t, 1, ran)
}

// F3: without an id, the second message would be taken for the first, and be lost.
func testKeyWithoutID(t *testing.T, h Harness) {
	key, ran := inboxstore.Key{Consumer: "consumer", Topic: "topic"}, false
	fresh, once := h.Store.Once(patient(t), key, func(context.Context) error { ran = true; return nil })
	require.False(t, fresh)
	fresh, deferred := h.Store.Defer(patient(t), queue, key, newMessage("", ""))
	require.False(t, fresh)
	_, recorded := h.Store.RecordFailure(patient(t), key, errFn)
	for _, err := range []error{once, deferred, recorded, h.Store.Bury(patient(t), key, newMessage("", ""), 1, errFn)} {
		require.ErrorIs(t, err, postbox.ErrPermanent)
		require.ErrorContains(t, err, "MessageID")
	}
	require.False(t, ran)
	letters, err := h.DeadLetters(patient(t))
	require.NoError(t, err)
	require.Empty(t, letters)
}

// A message or function that is nil is a mistake of the program. The store says so, and does not
// panic.
func testNil(t *testing.T, h Harness) {
	_, once := h.Store.Once(patient(t), keyOf("1"), nil)
	_, deferred := h.Store.Defer(patient(t), queue, keyOf("1"), nil)
	for _, err := range []error{once, deferred, h.Store.Bury(patient(t), keyOf("1"), nil, 1, errFn)} {
		require.ErrorContains(t, err, "is nil")
	}
	requireFresh(t, h.Store, keyOf("1"), "it was not claimed")
	attempts, err := h.Store.RecordFailure(patient(t), keyOf("2"), nil)
	require.NoError(t, err)
	require.Equal(t, 1, attempts, "a failure without an error is one too")
	require.NoError(t, h.Store.Bury(patient(t), keyOf("2"), newMessage("2", ""), 1, nil))
	require.True(t, claimed(t, h.Store, keyOf("2")))
}

// F2: if fn returns an error, the message was not handled. When the message is delivered again, fn
// runs again.
func testErrorLeavesTheClaimFree(t *testing.T, h Harness) {
	for range 3 {
		fresh, err := h.Store.Once(patient(t), keyOf("1"), fail)
		require.ErrorIs(t, err, errFn)
		require.False(t, fresh)
	}
	requireFresh(t, h.Store, keyOf("1"), "fn has only failed so far")
	require.True(t, claimed(t, h.Store, keyOf("1")))
}

// F2: a panic of fn reaches the caller, whose router recovers from it. Like an error, it leaves the
// claim free.
func testPanicLeavesTheClaimFree(t *testing.T, h Harness) {
	ended := claim(patient(t), h.Store, keyOf("1"), func(context.Context) error { panic("oh") })
	require.Equal(t, "oh", receive(t, ended, "Once").panicked)
	requireFresh(t, h.Store, keyOf("1"), "fn has only panicked so far")
}

// F6: while fn runs, another claim of its key waits. If fn succeeds, the other claim is a
// duplicate; otherwise its own fn runs.
func testSecondClaimWaits(t *testing.T, h Harness) { requireWaits(t, h.Store, h.Store) }

// F6: the same between two handles, and a claim by one is a duplicate for the other.
func testClaimsAcrossHandles(t *testing.T, h Harness) {
	second := h.open(t)
	requireWaits(t, h.Store, second.Store)
	requireFresh(t, h.Store, keyOf("mine"), "it is not claimed")
	require.True(t, claimed(t, second.Store, keyOf("mine")))
	requireFresh(t, second.Store, keyOf("yours"), "it is not claimed")
	require.True(t, claimed(t, h.Store, keyOf("yours")))
	requireOneOfManyCopies(t, h.Store, second.Store)
}

func requireWaits(t *testing.T, one, two Store) {
	t.Helper()
	for id, end := range map[string]func() error{
		"done":     func() error { return nil },
		"failed":   func() error { return errFn },
		"panicked": func() error { panic("oh") },
	} {
		entered, leave := make(chan struct{}), make(chan struct{})
		release := sync.OnceFunc(func() { close(leave) })
		t.Cleanup(release)
		first := claim(patient(t), one, keyOf(id), func(context.Context) error {
			close(entered)
			<-leave
			return end()
		})
		requireEnd(t, entered, "fn runs")
		running := make(chan struct{})
		second := claim(patient(t), two, keyOf(id), func(context.Context) error {
			close(running)
			return nil
		})
		requireQuiet(t, running, "fn runs although another one of its key does")
		require.Empty(t, second, "a second claim must wait for the first to end")
		release()
		firstEnd, secondEnd := receive(t, first, "the first claim"), receive(t, second, "the second claim")
		require.NoError(t, secondEnd.err, id)
		require.Equal(t, id == "done", firstEnd.fresh, id)
		require.Equal(t, id != "done", secondEnd.fresh, "%s: the second one runs if and only if the first one did not succeed", id)
		require.True(t, claimed(t, one, keyOf(id)))
	}
}

// F6: of many copies at the same time exactly one is handled, even if the first to run fails. Two
// copies never run at the same time.
func testManyCopies(t *testing.T, h Harness) { requireOneOfManyCopies(t, h.Store) }

func requireOneOfManyCopies(t *testing.T, stores ...Store) {
	t.Helper()
	for round := range 6 {
		key := keyOf(postbox.NewMessageID())
		var ran, running, together atomic.Int32
		copies := make([]<-chan attempt, concurrency)
		for i := range copies {
			copies[i] = claim(patient(t), stores[i%len(stores)], key, func(context.Context) error {
				if running.Add(1) > 1 {
					together.Add(1)
				}
				defer running.Add(-1)
				<-time.After(time.Millisecond) // long enough for other copies to run concurrently, if the store let them
				if ran.Add(1) == 1 && round%2 == 0 {
					return errFn
				}
				return nil
			})
		}
		handled, failed := 0, 0
		for _, ended := range copies {
			a := receive(t, ended, "a copy")
			switch {
			case a.fresh:
				handled++
			case a.err != nil:
				require.ErrorIs(t, a.err, errFn)
				failed++
			}
		}
		require.Equal(t, 1, handled, "round %d: copies that were handled", round)
		require.Equal(t, (round+1)%2, failed, "round %d: copies that failed", round)
		require.Zero(t, together.Load(), "round %d: copies that ran beside another one", round)
	}
}

// An inbox may wrap another one of the same consumer, one for a whole router and one for a handler.
// The inner call is no duplicate of the outer one. It runs, and decides nothing: its error is fn's,
// and leaves the claim free.
func testClaimWithinItself(t *testing.T, h Harness) {
	ran := 0
	nested := func(inner func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			fresh, err := h.Store.Once(ctx, keyOf("1"), func(ctx context.Context) error {
				ran++
				return inner(ctx)
			})
			require.Equal(t, err == nil, fresh)
			return err
		}
	}
	fresh, err := h.Store.Once(patient(t), keyOf("1"), nested(fail))
	var failure *inboxstore.HandlerError
	require.ErrorAs(t, err, &failure)
	require.Equal(t, errFn, failure.Err, "of the outer one alone")
	require.False(t, fresh)
	for i := range 2 {
		fresh, err = h.Store.Once(patient(t), keyOf("1"), nested(nested(succeed)))
		require.NoError(t, err)
		require.Equal(t, i == 0, fresh)
	}
	require.Equal(t, 3, ran)
}

// F21: a key has three parts. A difference in any part, or in the border between two parts, makes
// another message.
func testScopes(t *testing.T, h Harness) {
	requireDistinct(t, h.Store, []inboxstore.Key{
		{Consumer: "a", Topic: "t", MessageID: "1"},
		{Consumer: "b", Topic: "t", MessageID: "1"},
		{Consumer: "a", Topic: "u", MessageID: "1"},
		{Consumer: "b", Topic: "u", MessageID: "1"},
		{Consumer: "t", Topic: "a", MessageID: "1"},
		{Consumer: "at", MessageID: "1"},
		{Topic: "at", MessageID: "1"},
		{Consumer: "a", Topic: "t1", MessageID: "1"},
		{Consumer: "a", Topic: "t", MessageID: "11"},
		{Consumer: "A", Topic: "t", MessageID: "1"},
		{Consumer: "a", Topic: "T", MessageID: "1"},
		{Consumer: "a ", Topic: "t", MessageID: "1"},
	})
}

// F3: only equal ids name the same message. Ids that a database may treat as equal are different:
// because of case or blanks, as numbers, as UUIDs, cut off at a maximum length, or by a weak hash.
func testDistinctIDs(t *testing.T, h Harness) {
	ids := distinctIDs()
	keys := make([]inboxstore.Key, len(ids))
	for i, id := range ids {
		keys[i] = keyOf(id)
	}
	requireDistinct(t, h.Store, keys)
}

// requireDistinct claims all keys, and then checks that each of them is a duplicate.
func requireDistinct(t *testing.T, store Store, keys []inboxstore.Key) {
	t.Helper()
	for _, key := range keys {
		fresh, err := store.Once(patient(t), key, succeed)
		require.NoError(t, err, "%.60q", key)
		require.True(t, fresh, "%.60q was taken for another one", key)
	}
	for _, key := range keys {
		fresh, err := store.Once(patient(t), key, succeed)
		require.NoError(t, err, "%.60q", key)
		require.False(t, fresh, "%.60q was forgotten", key)
	}
}
