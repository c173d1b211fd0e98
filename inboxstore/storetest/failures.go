package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/inboxstore"
)

// RecordFailure returns the number of failed attempts of this key so far. Any error can be
// recorded.
func testFailuresAreCounted(t *testing.T, h Harness) { requireCounted(t, h.Store) }

// F14: all processes count together. Otherwise each of them would try a message as often as all
// together may.
func testFailuresAcrossHandles(t *testing.T, h Harness) { requireCounted(t, h.Store, h.open(t).Store) }

func requireCounted(t *testing.T, stores ...Store) {
	t.Helper()
	for i := range 6 {
		store := stores[i%len(stores)]
		got, err := store.RecordFailure(patient(t), keyOf("1"), fmt.Errorf("failure %d %s", i, anyBytes))
		require.NoError(t, err)
		require.Equal(t, i+1, got)
	}
	for _, other := range []inboxstore.Key{
		keyOf("2"), {Consumer: "other", Topic: "orders", MessageID: "1"}, {Consumer: "billing", Topic: "other", MessageID: "1"},
	} {
		got, err := stores[0].RecordFailure(patient(t), other, errFn)
		require.NoError(t, err)
		require.Equal(t, 1, got, "failures of %v", other)
	}
}

// F14: two processes may record failures of one message at the same time, since the second runs as
// soon as the first has rolled back. Each gets a number of its own. Otherwise the message would be
// tried too often.
func testFailuresAtTheSameInstant(t *testing.T, h Harness) {
	var mu sync.Mutex
	var got, want []int
	var recorders sync.WaitGroup
	ctx := patient(t)
	for i := range concurrency {
		want = append(want, i+1)
		recorders.Go(func() {
			number, err := h.Store.RecordFailure(ctx, keyOf("1"), errFn)
			if err != nil {
				t.Errorf("record failure: %s", err)
			}
			mu.Lock()
			defer mu.Unlock()
			got = append(got, number)
		})
	}
	recorders.Wait()
	require.ElementsMatch(t, want, got)
}

// Bury moves a message to the dead letters with its payload, its metadata and the history of its
// failures, and claims it: it is not handled again.
func testBury(t *testing.T, h Harness) {
	causes := []error{errors.New("first"), errors.New("second"), errFn}
	for _, cause := range causes {
		_, err := h.Store.RecordFailure(patient(t), keyOf("1"), cause)
		require.NoError(t, err)
	}
	require.NoError(t, h.Store.Bury(patient(t), keyOf("1"), newMessage("1", "customer 7"), 3, errFn))
	require.Equal(t, DeadLetter{
		Consumer: "billing", Topic: "orders", MessageID: "1",
		Payload: []byte("payload of 1"), Metadata: newMessage("1", "customer 7").Metadata,
		Attempts: 3, Error: errFn.Error(), Failures: []string{"first", "second", errFn.Error()},
	}, h.letter(t))
	require.True(t, claimed(t, h.Store, keyOf("1")))
	fresh, err := h.Store.Defer(patient(t), queue, keyOf("1"), newMessage("1", ""))
	require.NoError(t, err)
	require.False(t, fresh, "a dead message is not deferred")
	require.Empty(t, h.pending(t, queue))
}

// Bury does nothing, and returns no error, if the message was handled, deferred or buried
// meanwhile.
func testBuryLeavesWhatWasClaimed(t *testing.T, h Harness) {
	requireFresh(t, h.Store, keyOf("handled"), "it is not claimed")
	deferred(t, h.Store, "deferred", "")
	for _, id := range []string{"handled", "deferred"} {
		require.NoError(t, h.Store.Bury(patient(t), keyOf(id), newMessage(id, ""), 3, errFn))
	}
	require.Empty(t, h.letters(t))
	require.Equal(t, []string{"deferred"}, h.pending(t, queue))
	require.NoError(t, h.Store.Bury(patient(t), keyOf("dead"), newMessage("dead", ""), 1, errFn))
	require.NoError(t, h.Store.Bury(patient(t), keyOf("dead"), newMessage("dead", ""), 2, errors.New("again")))
	require.Equal(t, 1, h.letter(t).Attempts, "the first letter stays")
}

// F22: while a handler of the message runs, Bury waits for it. If the handler succeeds, the message
// is not buried.
func testBuryWaits(t *testing.T, h Harness) {
	for id, end := range map[string]func(context.Context) error{"done": succeed, "failed": fail} {
		entered, leave := make(chan struct{}), make(chan struct{})
		release := sync.OnceFunc(func() { close(leave) })
		t.Cleanup(release)
		handler := claim(patient(t), h.Store, keyOf(id), func(ctx context.Context) error {
			close(entered)
			<-leave
			return end(ctx)
		})
		requireEnd(t, entered, "fn runs")
		buried := make(chan error, 1)
		ctx := patient(t)
		go func() { buried <- h.Store.Bury(ctx, keyOf(id), newMessage(id, ""), 3, errFn) }()
		requireQuiet(t, buried, "Bury must wait for the handler to end")
		release()
		receive(t, handler, "the handler")
		require.NoError(t, receive(t, buried, "Bury"))
		require.True(t, claimed(t, h.Store, keyOf(id)))
	}
	require.Equal(t, "failed", h.letter(t).MessageID)
}

// F22: of several concurrent calls of Bury for a message, one takes effect.
func testBuryAtTheSameInstant(t *testing.T, h Harness) {
	var wg sync.WaitGroup
	ctx := patient(t)
	for range concurrency {
		wg.Go(func() {
			if err := h.Store.Bury(ctx, keyOf("1"), newMessage("1", ""), 3, errFn); err != nil {
				t.Errorf("bury: %s", err)
			}
		})
	}
	wg.Wait()
	h.letter(t)
}

// G12: a handler may fail because its delivery was cancelled, and this failure must be recorded.
func testFailureAfterCancel(t *testing.T, h Harness) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got, err := h.Store.RecordFailure(ctx, keyOf("1"), errFn)
	require.NoError(t, err)
	require.Equal(t, 1, got)
	require.NoError(t, h.Store.Bury(ctx, keyOf("1"), newMessage("1", ""), got, errFn))
	require.Equal(t, 1, h.letter(t).Attempts)
}

// A dead letter keeps everything that Watermill accepts: any bytes, 10 kB of id, no payload, no
// metadata.
func testBuryAnyBytes(t *testing.T, h Harness) {
	msg := anyBytesMessage()
	require.NoError(t, h.Store.Bury(patient(t), keyOf(msg.UUID), msg, 1, errors.New(anyBytes)))
	letter := h.letter(t)
	require.Equal(t, msg.UUID, letter.MessageID)
	require.Equal(t, []byte(msg.Payload), letter.Payload)
	require.Equal(t, msg.Metadata, letter.Metadata)
	require.NotEmpty(t, letter.Error)

	require.NoError(t, h.Store.Bury(patient(t), keyOf("bare"), &message.Message{UUID: "bare"}, 1, errFn))
	letters := h.letters(t)
	require.Len(t, letters, 2)
	letter = letters[1]
	require.Equal(t, "bare", letter.MessageID)
	require.Empty(t, letter.Payload)
	require.Empty(t, letter.Metadata)
}
