package txscope_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/txscope"
)

type word struct{}

func TestEndsWith_asks_for_the_end_of_the_transaction(t *testing.T) {
	t.Parallel()
	tx, other := &sql.Tx{}, &sql.Tx{}
	began, cancel := context.WithCancel(t.Context())
	defer cancel()
	hooked := txscope.Hooked(began, tx).Context(began)
	require.True(t, txscope.EndsWith(hooked, tx))
	require.True(t, txscope.EndsWith(context.WithValue(hooked, word{}, 1), tx), "a value changes nothing")

	sooner, stop := context.WithCancel(hooked)
	defer stop()
	require.False(t, txscope.EndsWith(sooner, tx), "it may end before")
	require.False(t, txscope.EndsWith(context.WithoutCancel(hooked), tx), "it never ends")
	require.False(t, txscope.EndsWith(hooked, other))
	require.False(t, txscope.EndsWith(began, tx), "it says nothing of a transaction")
	require.False(t, txscope.EndsWith(txscope.New(tx).Context(began), tx), "nobody knows what the transaction began with")
}

func TestScope_runs_hooks_after_the_commit(t *testing.T) {
	t.Parallel()
	scope, ran := txscope.Hooked(t.Context(), &sql.Tx{}), []int{}
	for i := range 3 {
		require.True(t, txscope.From(scope.Context(t.Context())).AfterCommit(func() { ran = append(ran, i) }))
	}
	require.Empty(t, ran)
	scope.Committed()
	require.Equal(t, []int{0, 1, 2}, ran)

	require.False(t, txscope.New(&sql.Tx{}).AfterCommit(func() { t.Error("nobody tells of this commit") }))
	require.Nil(t, txscope.From(t.Context()))
	require.False(t, txscope.From(t.Context()).AfterCommit(func() { t.Error("there is no transaction") }))
}

func TestScope_remembers_the_first_failure(t *testing.T) {
	t.Parallel()
	first, second := errors.New("first"), errors.New("second")
	scope := txscope.New(&sql.Tx{})
	scope.Fail(nil)
	require.NoError(t, scope.Failure())
	scope.Fail(first)
	scope.Fail(second)
	require.Equal(t, first, scope.Failure())

	var none *txscope.Scope
	none.Fail(first)
	require.NoError(t, none.Failure())
}

func within(t *testing.T, ctx context.Context) *txscope.Scope { //nolint:revive // t is first in each helper of a test
	t.Helper()
	scope, err := txscope.Within(ctx)
	require.NoError(t, err)
	return scope
}

func TestScope_of_a_savepoint_hands_its_hooks_on_and_keeps_its_failure(t *testing.T) {
	t.Parallel()
	tx, ran := &sql.Tx{}, []string{}
	outer := txscope.Hooked(t.Context(), tx)
	ctx := outer.Context(t.Context())
	require.True(t, outer.AfterCommit(func() { ran = append(ran, "outer") }))
	inner := within(t, ctx)
	require.True(t, inner.AfterCommit(func() { ran = append(ran, "inner") }))
	innermost := within(t, inner.Context(ctx))
	require.True(t, innermost.AfterCommit(func() { ran = append(ran, "innermost") }))
	require.NoError(t, innermost.Return())
	innermost.Committed()
	innermost.Leave()
	undone := within(t, inner.Context(ctx))
	require.True(t, undone.AfterCommit(func() { t.Error("its savepoint was rolled back") }))
	undone.Leave()
	require.True(t, txscope.EndsWith(inner.Context(ctx), tx))
	inner.Fail(errors.New("undone with the savepoint"))
	require.NoError(t, outer.Failure())
	inner.Committed()
	inner.Leave()
	require.Empty(t, ran)
	outer.Committed()
	require.Equal(t, []string{"outer", "inner", "innermost"}, ran)
	require.False(t, outer.AfterCommit(func() { t.Error("the commit is over") }))
}

func TestScope_lets_nothing_begin_after_its_function_has_returned(t *testing.T) {
	t.Parallel()
	tx := &sql.Tx{}
	outer := txscope.Hooked(t.Context(), tx)
	inner := within(t, outer.Context(t.Context()))
	_, err := txscope.Within(outer.Context(t.Context()))
	require.ErrorIs(t, err, txscope.ErrBeside)
	require.NoError(t, inner.Begin())
	inner.End()
	require.NoError(t, inner.Return())
	require.NoError(t, inner.Return(), "it can be called twice")
	inner.Leave()
	refused := func(scope *txscope.Scope) {
		t.Helper()
		live, err := scope.Live()
		require.ErrorIs(t, err, txscope.ErrReturned)
		require.Nil(t, live)
		require.ErrorIs(t, scope.Begin(), txscope.ErrReturned)
		_, err = txscope.Within(scope.Context(t.Context()))
		require.ErrorIs(t, err, txscope.ErrReturned)
	}
	refused(inner)

	again := within(t, outer.Context(t.Context()))
	require.NoError(t, again.Return())
	again.Leave()
	require.NoError(t, outer.Return())
	refused(outer)

	outer.Committed()
	for _, scope := range []*txscope.Scope{outer, inner} {
		live, err := scope.Live()
		require.NoError(t, err, "a hook may have a transaction of its own")
		require.Nil(t, live)
	}
	var none *txscope.Scope
	require.NoError(t, none.Begin())
	none.End()
}
