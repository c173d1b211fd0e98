package admin

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// A place comes back from a web page: it is one that a list gave out, or an error.
func FuzzPlace(f *testing.F) {
	for _, place := range []string{"", "0-0-0", "2-255-9223372036854775807", "-1-0-0", "0--1-1", " 0-0-0", "0-0-0 ", "+0-0-0", "3-1-1", "0-0-99999999999999999999", "x"} {
		f.Add(place)
	}
	f.Fuzz(func(t *testing.T, text string) {
		place, err := cursor(text).parse(dialect.StateReady, dialect.StateRetrying)
		if err != nil || text == "" {
			require.Zero(t, place)
			return
		}
		require.Equal(t, cursor(text), cursorOf(place))
		require.GreaterOrEqual(t, place.State, dialect.StateReady)
		require.LessOrEqual(t, place.State, dialect.StateRetrying)
	})
}

func FuzzPlace_roundtrip(f *testing.F) {
	f.Add(0, int64(0), int64(1))
	f.Add(2, int64(255), int64(math.MaxInt64))
	f.Add(1, int64(math.MinInt64), int64(math.MinInt64))
	f.Fuzz(func(t *testing.T, state int, lane, id int64) {
		place := dialect.Place{State: state, Lane: lane, ID: id}
		read, err := cursorOf(place).parse(math.MinInt, math.MaxInt)
		require.NoError(t, err)
		require.Equal(t, place, read)
	})
}

// What is asked for is bounded, whatever is asked for.
func FuzzFilter(f *testing.F) {
	statements, err := dialect.For(dialect.SQLite, "", "", "")
	require.NoError(f, err)
	f.Add(0, 0, "", "", "")
	f.Add(-1, 3, "\x00", "\xff", "'")
	f.Add(MaxLimit+1, -1, "a", "b", "c")
	f.Fuzz(func(t *testing.T, limit, resolved int, topic, consumer, id string) {
		filter := Filter{Limit: limit, Resolved: []string{"", "yes", "any", "no"}[uint(resolved)%4], Topic: topic, Consumer: consumer, MessageID: id}
		limit, err := filter.listed(deadLetters)
		if err != nil {
			return
		}
		page := filter.ofLetters()
		page.Limit = limit
		require.Positive(t, page.Limit)
		require.LessOrEqual(t, page.Limit, MaxLimit)
		query := statements.DeadLetters(page)
		require.Len(t, query.Args, strings.Count(query.Text, "?"))
	})
}

func TestFilter_is_described_for_the_audit_log(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	require.Equal(t, `not resolved, in queue "mail", topic "mail", key "k\xff", error with "declined", cause "crash", attempts from 2, limit 7, died from 2026-01-02T03:04:05Z`,
		Filter{
			Target: Queue("mail"), Topic: "mail", Key: "k\xff", ErrorText: "declined", Cause: "crash", MinAttempts: 2, Limit: 7, From: at,
		}.describe(deadLetters))
	require.Equal(t, "not resolved", Filter{}.describe(deadLetters))
	require.Equal(t, "all", Filter{Target: Queue("mail")}.describe(pendingMessages))
	require.Less(t, len(Filter{Key: strings.Repeat("x", 1<<20)}.describe(deadLetters)), 400)
}
