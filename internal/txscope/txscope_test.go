package txscope_test

import (
	"context"
	"database/sql"
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
