package postbox_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/keyhash"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/internal/txscope"
	"github.com/postbox-go/watermill-postbox/internal/verdict"
)

// The hash is written down: rows of older versions are in the lanes that it chose. FNV-1a's own
// test vectors.
func TestKeyHash_never_changes(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]uint64{
		"": 0xcbf29ce484222325, "a": 0xaf63dc4c8601ec8c, "foobar": 0x85944171f73967e8,
	} {
		require.Equal(t, want, uint64(keyhash.Of(key)), key) //nolint:gosec // the bits are compared
	}
	for key, lane := range map[string]int{"a": 0, "foobar": 25, "customer-7": 26} {
		require.Equal(t, lane, keyhash.Lane(keyhash.Of(key), 32), key)
	}
}

func TestLane_spreads_keys(t *testing.T) {
	t.Parallel()
	const lanes, keys = 32, 32_000
	counts := make([]int, lanes)
	for i := range keys {
		counts[keyhash.Lane(keyhash.Of(fmt.Sprintf("customer-%d", i)), lanes)]++
	}
	for lane, count := range counts {
		require.Less(t, math.Abs(float64(count)-keys/lanes), 0.25*keys/lanes, "lane %d", lane)
	}
	require.Zero(t, keyhash.Lane(math.MinInt64, 1))
}

// Lanes that are counted through several servers, as docs/scaling.md advises: each server has its
// share of the keys, in all of its lanes, and with twice as many servers a key stays or moves to
// the one new server that is its own's heir.
func TestLane_numbered_across_several_servers_leaves_no_lane_empty(t *testing.T) {
	t.Parallel()
	const servers, lanes, keys = 4, 32, 32_000
	var counts [servers][lanes]int
	for i := range keys {
		hash := keyhash.Of(fmt.Sprintf("customer-%d", i))
		server := keyhash.Lane(hash, servers*lanes) / lanes
		counts[server][keyhash.Lane(hash, lanes)]++
		require.Contains(t, []int{server, server + servers}, keyhash.Lane(hash, 2*servers*lanes)/lanes)
	}
	for server := range counts {
		for lane, count := range counts[server] {
			require.Less(t, math.Abs(float64(count)-keys/servers/lanes), 0.4*keys/servers/lanes, "lane %d of server %d", lane, server)
		}
	}
}

func TestNewMessageID_is_ordered_by_time(t *testing.T) {
	t.Parallel()
	last := ""
	for range 1000 {
		id := postbox.NewMessageID()
		require.Greater(t, id, last)
		last = id
	}
}

func TestErrors_carry_what_Permanent_and_RetryAfter_ask_for(t *testing.T) {
	t.Parallel()
	require.NoError(t, postbox.Permanent(nil))
	require.NoError(t, postbox.RetryAfter(nil, time.Second))
	var permanent *verdict.PermanentError
	require.ErrorAs(t, fmt.Errorf("wrapped: %w", postbox.Permanent(io.EOF)), &permanent)
	require.ErrorIs(t, permanent, io.EOF)
	var later *verdict.RetryAfterError
	require.ErrorAs(t, fmt.Errorf("wrapped: %w", postbox.RetryAfter(io.EOF, time.Minute)), &later)
	require.Equal(t, time.Minute, later.After)
	require.ErrorIs(t, later, io.EOF)
}

func TestClassifyNetwork(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err  error
		want postbox.ErrorClass
	}{
		"refused":        {&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, postbox.Outage},
		"reset":          {fmt.Errorf("publish: %w", syscall.ECONNRESET), postbox.Outage},
		"timed out":      {context.DeadlineExceeded, postbox.Outage},
		"unknown host":   {&net.DNSError{Err: "no such host", IsNotFound: true}, postbox.Outage},
		"bad connection": {driver.ErrBadConn, postbox.Outage},
		"cancelled":      {context.Canceled, postbox.Unclassified},
		"permanent":      {postbox.Permanent(io.EOF), postbox.MessageFault},
		"anything else":  {errors.New("connection refused"), postbox.Unclassified},
	} {
		require.Equal(t, test.want, postbox.ClassifyNetwork(test.err), name)
	}
}

func TestContext_carries_the_transaction_and_its_AfterCommit_functions(t *testing.T) {
	t.Parallel()
	tx, err := testdb.SQLite(t).DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	_, ok := postbox.TxFromContext(t.Context())
	require.False(t, ok)
	plain := postbox.ContextWithTx(t.Context(), tx)
	got, ok := postbox.TxFromContext(plain)
	require.True(t, ok)
	require.Same(t, tx, got)
	require.False(t, postbox.AfterCommit(plain, func() {}), "nobody would call it")
	none := postbox.ContextWithTx(plain, nil)
	got, ok = postbox.TxFromContext(none)
	require.False(t, ok)
	require.Nil(t, got)
	require.False(t, postbox.AfterCommit(none, func() {}))
	_, ok = postbox.TxFromContext(postbox.ContextWithTx(t.Context(), nil))
	require.False(t, ok)

	scope := txscope.Hooked(t.Context(), tx)
	hooked, committed := scope.Context(t.Context()), scope.Committed
	calls := 0
	require.False(t, postbox.AfterCommit(hooked, nil), "there is nothing to call")
	require.True(t, postbox.AfterCommit(hooked, func() { calls++ }))
	require.Zero(t, calls)
	committed()
	require.Equal(t, 1, calls)
	require.Equal(t, hooked, postbox.ContextWithTx(hooked, tx), "it knows more of the transaction already")
}
