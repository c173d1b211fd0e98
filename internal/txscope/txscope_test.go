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

func TestScope_runs_hooks_where_somebody_commits(t *testing.T) {
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

func TestScope_of_a_savepoint_hands_its_hooks_on_and_keeps_its_failure(t *testing.T) {
	t.Parallel()
	tx, ran := &sql.Tx{}, []string{}
	outer := txscope.Hooked(t.Context(), tx)
	ctx := outer.Context(t.Context())
	require.True(t, outer.AfterCommit(func() { ran = append(ran, "outer") }))
	inner := txscope.Within(ctx, tx)
	require.True(t, inner.AfterCommit(func() { ran = append(ran, "inner") }))
	innermost := txscope.Within(inner.Context(ctx), tx)
	require.True(t, innermost.AfterCommit(func() { ran = append(ran, "innermost") }))
	undone := txscope.Within(inner.Context(ctx), tx)
	require.True(t, undone.AfterCommit(func() { t.Error("its savepoint was rolled back") }))
	require.True(t, txscope.EndsWith(inner.Context(ctx), tx))
	inner.Fail(errors.New("undone with the savepoint"))
	require.NoError(t, outer.Failure())
	innermost.Committed()
	inner.Committed()
	require.Empty(t, ran)
	outer.Committed()
	require.Equal(t, []string{"outer", "inner", "innermost"}, ran)

	foreign := txscope.Within(t.Context(), tx)
	require.False(t, foreign.AfterCommit(func() { t.Error("nobody tells of this commit") }))
}
