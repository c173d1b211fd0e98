package admin

import (
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin/internal/operatorsql"
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
		place := operatorsql.Place{State: state, Lane: lane, ID: id}
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
	f.Add(maxLimit+1, -1, "a", "b", "c")
	f.Fuzz(func(t *testing.T, limit, resolved int, topic, consumer, id string) {
		filter := Filter{Limit: limit, Resolved: []string{"", "yes", "any", "no"}[uint(resolved)%4], Topic: topic, Consumer: consumer, MessageID: id}
		limit, err := filter.listed(deadLetters)
		if err != nil {
			return
		}
		page := filter.ofLetters()
		page.Limit = limit
		require.Positive(t, page.Limit)
		require.LessOrEqual(t, page.Limit, maxLimit)
		query := operatorsql.New(statements).DeadLetters(page)
		require.Len(t, query.Args, strings.Count(query.Text, "?"))
	})
}

// An action goes on with the filter that its description says, or with none.
func FuzzFilter_is_read_from_its_description(f *testing.F) {
	f.Add("orders", `a", key "b`, "\xff\x00", 2, int64(7))
	f.Add(strings.Repeat("é", longest), "limit 7, ", "all", 0, int64(0))
	f.Add(strings.Repeat("x", longest-1), "", "not resolved", 0, int64(0))
	f.Fuzz(func(t *testing.T, topic, key, text string, n int, at int64) {
		filter := Filter{Topic: topic, Key: key, MessageID: text, ErrorText: text, MinAttempts: n, Limit: n, Resolved: []string{"", "yes", "any"}[uint(n)%3]}
		if at > 0 && at < 1<<40 {
			filter.From, filter.Until, filter.Target = time.UnixMicro(at).UTC(), time.UnixMicro(at<<1).UTC(), Queue(key)
		}
		for _, of := range []list{deadLetters, pendingMessages} {
			want := filter
			if of.of != deadLetters.of {
				want.Target, want.Resolved = Target{}, ""
			}
			found, err := of.described(filter.describe(of))
			if long := func(text string) bool { return utf8.RuneCountInString(text) >= longest }; long(topic) || long(key) || long(text) {
				require.Error(t, err)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, want, found)
		}
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

// What is no description, or may have been cut, chooses nothing.
func TestDescription_that_is_empty_or_long_is_none(t *testing.T) {
	t.Parallel()
	for _, l := range []list{deadLetters, pendingMessages} {
		_, err := l.described("")
		require.ErrorIs(t, err, errNoDescription)
		of := func(letter string) Filter {
			text := strings.Repeat(letter, longest-1)
			return Filter{Topic: text, Key: text, ErrorText: text, MessageID: text}
		}
		found, err := l.described(of("é").describe(l))
		require.NoError(t, err)
		require.Equal(t, of("é"), found)
		_, err = l.described(of("😀").describe(l)) // more than the audit log keeps
		require.ErrorIs(t, err, errNoDescription)
	}
}
