package admin_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestAdmin_reads_a_dead_letter_with_its_history(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		before := time.Now().Add(-time.Hour)
		b.append(draft("one", "orders", "key"))
		b.bury()

		listed := b.only(admin.Filter{})
		require.Nil(t, listed.Payload)
		require.Nil(t, listed.Metadata)
		require.Nil(t, listed.Failures)

		letter, err := b.admin.DeadLetter(t.Context(), listed.ID)
		require.NoError(t, err)
		require.Equal(t, "payload of one", string(letter.Payload))
		require.Equal(t, map[string]string{"about": "one", "bytes": "\x00\xff"}, map[string]string(letter.Metadata))
		require.Len(t, letter.Failures, 2)
		for i, failure := range letter.Failures {
			require.Equal(t, i+1, failure.Attempt)
			require.Equal(t, errBroker.Error(), failure.Error)
			require.Equal(t, "forwarder", failure.Process)
			require.WithinRange(t, failure.At, before, time.Now().Add(time.Hour))
		}
		require.Greater(t, letter.Size, len(letter.Payload))
		require.WithinRange(t, letter.CreatedAt, before, letter.DiedAt)

		letter.Payload, letter.Metadata, letter.Failures = nil, nil, nil
		require.Equal(t, listed, *letter)
		require.Equal(t, admin.DeadLetter{
			ID: listed.ID, Target: b.target, Topic: "orders", MessageID: "one", Key: "key", Attempts: 2, Cause: "attempts",
			Error: errBroker.Error(), Shape: errBroker.Error(), CreatedAt: listed.CreatedAt, DiedAt: listed.DiedAt, Size: listed.Size,
		}, listed)

		_, err = b.admin.DeadLetter(t.Context(), listed.ID+1)
		require.ErrorIs(t, err, admin.ErrNotFound)
	})
}

func TestAdmin_lists_the_dead_letters_that_a_filter_selects(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(draft("a", "orders", ""), draft("b", "orders", ""), draft("c", "refunds", ""))
		b.bury()
		b.buryInbox("d", 0)
		b.buryInbox("\xff\x00", 0) // a message id is any string
		death := func(id string, hour int) {
			b.exec(database.Bind("UPDATE postbox_dead_letters SET died_at = ? WHERE message_id = ?"),
				time.Date(2026, 1, 1, hour, 0, 0, 0, time.UTC).UnixMicro(), []byte(id))
		}
		for hour, id := range []string{"a", "b", "c", "d", "\xff\x00"} {
			death(id, hour)
		}
		require.NoError(t, errorOf(b.admin.Resolve(t.Context(), admin.Filter{ID: b.only(admin.Filter{MessageID: "b"}).ID}, "paid by hand")))

		hour := func(h int) time.Time { return time.Date(2026, 1, 1, h, 0, 0, 0, time.FixedZone("here", 0)) }
		for name, test := range map[string]struct {
			filter admin.Filter
			want   []string
		}{
			"nothing set":  {admin.Filter{}, []string{"a", "c", "d", "\xff\x00"}},
			"topic":        {admin.Filter{Topic: "orders", Resolved: "any"}, []string{"a", "b", "d", "\xff\x00"}},
			"consumer":     {admin.Filter{Consumer: "billing"}, []string{"d", "\xff\x00"}},
			"message id":   {admin.Filter{MessageID: "\xff\x00"}, []string{"\xff\x00"}},
			"unknown":      {admin.Filter{MessageID: "e"}, nil},
			"other case":   {admin.Filter{Topic: "Orders"}, nil},
			"resolved":     {admin.Filter{Resolved: "yes"}, []string{"b"}},
			"died after":   {admin.Filter{From: hour(2)}, []string{"c", "d", "\xff\x00"}},
			"died before":  {admin.Filter{Until: hour(2)}, []string{"a"}},
			"all together": {admin.Filter{Topic: "orders", Consumer: "billing", From: hour(1), Until: hour(4)}, []string{"d"}},
		} {
			require.ElementsMatch(t, test.want, ids(b.list(test.filter)), name)
		}
	})
}

func TestAdmin_lists_page_by_page(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		for i := range 7 {
			b.buryInbox(fmt.Sprint(i), 0)
		}
		var seen []string
		filter := admin.Filter{Limit: 3}
		for {
			page, next, err := b.admin.DeadLetters(t.Context(), filter)
			require.NoError(t, err)
			require.LessOrEqual(t, len(page), 3)
			seen = append(seen, ids(page)...)
			if filter.After = next; next == "" {
				break
			}
		}
		require.Equal(t, []string{"0", "1", "2", "3", "4", "5", "6"}, seen)

		_, _, err := b.admin.DeadLetters(t.Context(), admin.Filter{Limit: 1001})
		require.ErrorContains(t, err, "limit")
		_, _, err = b.admin.DeadLetters(t.Context(), admin.Filter{Limit: -1, Resolved: "nine"})
		require.ErrorContains(t, err, "limit")
		require.ErrorContains(t, err, "resolved")
	})
}

func TestAdmin_resolves_with_a_reason(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(draft("one", "orders", ""))
		b.bury()
		id := b.only(admin.Filter{}).ID
		require.ErrorContains(t, errorOf(b.admin.Resolve(t.Context(), admin.Filter{ID: id}, "  ")), "reason")
		require.NoError(t, errorOf(b.admin.Resolve(t.Context(), admin.Filter{ID: id}, "refunded by hand \x00\xff"+strings.Repeat("!", 10_000))))
		require.ErrorIs(t, errorOf(b.admin.Resolve(t.Context(), admin.Filter{ID: id}, "too late")), admin.ErrRefused)
		require.ErrorIs(t, errorOf(b.admin.Requeue(t.Context(), admin.Filter{ID: id}, admin.Again{})), admin.ErrRefused)
		require.ErrorIs(t, errorOf(b.admin.Resolve(t.Context(), admin.Filter{ID: id + 1}, "no such letter")), admin.ErrNotFound)

		letter := b.only(admin.Filter{Resolved: "yes"})
		require.True(t, strings.HasPrefix(letter.Resolution, "refunded by hand"))
		require.WithinDuration(t, time.Now(), letter.ResolvedAt, time.Hour)
		require.Empty(t, b.list(admin.Filter{}))
		require.Zero(t, b.pending())
	})
}

func TestAdmin_deletes_dead_letters_and_keeps_their_claims(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.buryInbox("open", 0)
		b.buryInbox("resolved", 0)
		require.NoError(t, errorOf(b.admin.Resolve(t.Context(), admin.Filter{ID: b.only(admin.Filter{MessageID: "resolved"}).ID}, "done")))
		for _, letter := range b.list(admin.Filter{Resolved: "any"}) {
			require.NoError(t, errorOf(b.admin.Delete(t.Context(), admin.Filter{ID: letter.ID})))
			require.ErrorIs(t, errorOf(b.admin.Delete(t.Context(), admin.Filter{ID: letter.ID})), admin.ErrNotFound)
		}
		require.Zero(t, b.dead())
		require.Equal(t, 2, database.Count(t, "SELECT COUNT(*) FROM postbox_claims"), "the deliveries are still known")
	})
}

func TestAdmin_without_tables_says_what_to_do(t *testing.T) {
	t.Parallel()
	for _, open := range []func(*testing.T) *testdb.Database{testdb.Postgres, testdb.MySQL} {
		database := open(t)
		a, err := admin.New(database.Postbox(), admin.Config{}, nil)
		require.NoError(t, err)
		_, err = a.Account(t.Context(), admin.Outbox("outbox"))
		require.ErrorContains(t, err, "postbox.Migrate")
		_, _, err = a.DeadLetters(t.Context(), admin.Filter{})
		require.ErrorContains(t, err, "postbox.Migrate")
		_, err = a.Requeue(t.Context(), admin.Filter{All: true}, admin.Again{})
		require.ErrorContains(t, err, "postbox.Migrate")
		require.ErrorContains(t, errorOf(a.Requeue(t.Context(), admin.Filter{ID: 1}, admin.Again{})), "postbox.Migrate")
	}
}

func TestNew_says_what_is_wrong(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	_, err := admin.New(postbox.Database{Dialect: postbox.SQLite}, admin.Config{}, nil)
	require.ErrorContains(t, err, "the database is nil")
	_, err = admin.New(postbox.Database{DB: database.DB, Prefix: "no spaces"}, admin.Config{}, nil)
	require.ErrorContains(t, err, "dialect is missing")
	require.ErrorContains(t, err, "prefix")
	_, err = admin.New(postbox.Database{DB: database.DB, Dialect: postbox.MySQL, Schema: "other", Prefix: "no spaces"}, admin.Config{}, nil)
	require.ErrorContains(t, err, `Schema "other": MySQL and MariaDB have no schemas`)
	require.ErrorContains(t, err, "prefix")
}

// A bound that is set filters, however early it is: only the zero time stands for none.
func TestAdmin_filters_by_the_beginning_of_1970(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.append(draft("m-1", "orders", ""))
	b.bury()
	require.Len(t, b.list(admin.Filter{}), 1)
	for _, at := range []time.Time{time.Unix(0, 0), time.Unix(-1, 0), time.Unix(0, 999)} {
		require.Empty(t, b.list(admin.Filter{Until: at}), at)
		require.Len(t, b.list(admin.Filter{From: at}), 1, at)
		n, err := b.admin.Requeue(t.Context(), admin.Filter{Until: at}, admin.Again{})
		require.NoError(t, err)
		require.Zero(t, n)
	}
}
