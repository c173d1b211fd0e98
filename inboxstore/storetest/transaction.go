package storetest

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
)

// effect returns an fn that writes through its transaction, and then returns the result of end.
func (h Harness) effect(t *testing.T, name string, end func(context.Context) error) func(context.Context) error {
	t.Helper()
	return func(ctx context.Context) error {
		tx, ok := postbox.TxFromContext(ctx)
		if !ok {
			t.Error("no transaction in the context of fn")
			return errFn
		}
		if err := h.AddEffect(ctx, tx, name); err != nil {
			return fmt.Errorf("write effect: %w", err)
		}
		return end(ctx)
	}
}

func (h Harness) effects(t *testing.T) []string {
	t.Helper()
	effects, err := h.Effects(patient(t))
	require.NoError(t, err)
	return effects
}

// G4: the writes of fn through the transaction in its context commit and roll back with the claim.
// An fn that fails or panics leaves no writes, and a duplicate adds none.
func testEffectAndClaim(t *testing.T, h Harness) {
	_, err := h.Store.Once(patient(t), keyOf("1"), h.effect(t, "failed", fail))
	require.ErrorIs(t, err, errFn)
	panicking := h.effect(t, "panicked", func(context.Context) error { panic("oh") })
	require.Equal(t, "oh", receive(t, claim(patient(t), h.Store, keyOf("1"), panicking), "Once").panicked)
	require.Empty(t, h.effects(t), "effects of an fn that failed")

	for range 3 {
		_, err = h.Store.Once(patient(t), keyOf("1"), h.effect(t, "done", succeed))
		require.NoError(t, err)
	}
	require.Equal(t, []string{"done"}, h.effects(t))
}

// G4: a message has its effect once, however many deliveries run concurrently.
func testManyCopiesOneEffect(t *testing.T, h Harness) {
	var want []string
	for round := range 4 {
		id := strconv.Itoa(round)
		want = append(want, id)
		copies := make([]<-chan attempt, concurrency)
		for i := range copies {
			copies[i] = claim(patient(t), h.Store, keyOf(id), h.effect(t, id, succeed))
		}
		for _, ended := range copies {
			require.NoError(t, receive(t, ended, "a copy").err)
		}
	}
	require.ElementsMatch(t, want, h.effects(t))
}

// G4: a handler that claims or defers in its own context does so in its transaction, and needs no
// second connection for it. The messages that it emits are stored with its commit or not at all. If
// a nested call fails, and the handler ignores the error, only the writes of that nested call are
// rolled back.
func testStoreInsideFn(t *testing.T, h Harness) {
	run := func(end func(context.Context) error) error {
		_, err := h.Store.Once(patient(t), keyOf("outer"), func(ctx context.Context) error {
			fresh, err := h.Store.Once(ctx, keyOf("inner"), h.effect(t, "inner", succeed))
			require.NoError(t, err)
			require.True(t, fresh, "the outer fn has only failed so far")
			fresh, err = h.Store.Defer(ctx, queue, keyOf("deferred"), newMessage("deferred", ""))
			require.NoError(t, err)
			require.True(t, fresh, "the outer fn has only failed so far")
			_, err = h.Store.Once(ctx, keyOf("broken"), h.effect(t, "broken", fail))
			require.ErrorIs(t, err, errFn)
			return end(ctx)
		})
		return err
	}
	require.ErrorIs(t, run(fail), errFn)
	require.Empty(t, h.pending(t, queue), "the outer fn failed")
	require.Empty(t, h.effects(t), "the outer fn failed")
	require.NoError(t, run(succeed))
	require.Equal(t, []string{"deferred"}, h.pending(t, queue))
	require.Equal(t, []string{"inner"}, h.effects(t))
	for _, id := range []string{"outer", "inner", "deferred"} {
		require.True(t, claimed(t, h.Store, keyOf(id)), id)
	}
	require.False(t, claimed(t, h.Store, keyOf("broken")))
}
