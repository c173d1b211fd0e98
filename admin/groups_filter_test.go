package admin_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// What is to be done differs with the code: a letter with 503 is tried again, and one with 404 is
// given up.
func TestGroups_keep_apart_what_has_another_code(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	for i, text := range []string{
		"bank api: HTTP 404", "bank api: HTTP 500", "bank api: HTTP 503 Service Unavailable", "bank api: declined, code=51", "bank api: declined, code=05",
		"pq: duplicate key (SQLSTATE 23505)", "pq: deadlock (SQLSTATE 40P01)", "550 5.1.1 no such user", "550 5.7.1 refused", "exit status 137",
		"order 4711 of 10.0.0.1:5432 at 12:30:45, HTTP 429", "order 4712 of 10.0.0.2:5433 at 12:31:09, HTTP 429",
	} {
		b.buryInbox(fmt.Sprintf("m-%02d", i), 0)
		b.database.Exec(t, "UPDATE postbox_dead_letters SET error = ? WHERE message_id = ?", text, fmt.Appendf(nil, "m-%02d", i))
	}
	groups, _, err := b.admin.Groups(t.Context(), admin.Filter{})
	require.NoError(t, err)
	var shapes []string
	for _, g := range groups {
		shapes = append(shapes, fmt.Sprintf("%d %s", g.Count, g.Shape))
	}
	require.ElementsMatch(t, []string{
		"1 bank api: HTTP 404", "1 bank api: HTTP 500", "1 bank api: HTTP 503 Service Unavailable", "1 bank api: declined, code=51", "1 bank api: declined, code=05",
		"1 pq: duplicate key (SQLSTATE 23505)", "1 pq: deadlock (SQLSTATE 40P01)", "1 550 5.1.1 no such user", "1 550 5.7.1 refused", "1 exit status 137",
		"2 order # of #:# at #:#:#, HTTP 429",
	}, shapes)
}

// Whatever the letters and the filter: the number of a group, the list that its filter chooses and
// what an action does to it are the same letters, and the groups together are all that the filter
// chooses.
func TestGroups_G8_are_what_their_filters_choose_and_actions_take(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // it chooses letters
		pick := func(from ...string) string { return from[random.IntN(len(from))] }
		b.letters(120)
		for i := range 60 {
			b.buryInbox(fmt.Sprintf("inbox-%d", i), 0)
		}
		for _, letter := range b.list(admin.Filter{Limit: 1000}) {
			text := pick("bank: HTTP ", "bank: HTTP 5", "bank", "", " ", "an \"open quote ", "declined, code=") + pick("503", "404", "4711", "9876", "05", "") +
				pick("", "", " of order 4242", " of 'x'", " of 'y'", fmt.Sprint(" é", slices.Repeat([]int{1234567}, 90)), " at 10:11:12", " at 10:11")
			consumer := ""
			if letter.Consumer != "" {
				consumer = pick("billing", "shipping")
			}
			database.Exec(t, "UPDATE postbox_dead_letters SET error = ?, topic = ?, attempts = ?, consumer = ?, cause = ?, died_at = ? WHERE id = ?",
				text, pick("orders", "refunds"), 1+random.IntN(4), consumer, random.IntN(7), died.Add(time.Duration(random.IntN(100))*time.Minute).UnixMicro(), letter.ID)
			if random.IntN(5) == 0 {
				database.Exec(t, "UPDATE postbox_dead_letters SET resolved_at = 1, resolution = 'known' WHERE id = ?", letter.ID)
			}
		}
		filters := []admin.Filter{{}}
		for range 20 {
			f := admin.Filter{
				Topic: pick("", "", "orders", "refunds"), ErrorText: pick("", "", "bank", "503", "order"), MinAttempts: random.IntN(4),
				MessageID: pick("", "", "", "", "", "", "inbox-7"), Key: pick("", "", "", "key", "1"), Cause: pick("", "", "", "attempts", "unknown"),
				Resolved: pick("", "", "no", "yes", "any"),
			}
			if random.IntN(3) == 0 {
				f.MaxAttempts = f.MinAttempts + 1
			}
			if random.IntN(3) == 0 {
				f.From = died.Add(time.Duration(random.IntN(50)) * time.Minute)
			}
			if random.IntN(3) == 0 {
				f.Until = died.Add(time.Duration(50+random.IntN(50)) * time.Minute)
			}
			switch random.IntN(4) {
			case 0:
				f.Consumer = pick("billing", "shipping")
			case 1:
				f.Target = b.target
			}
			filters = append(filters, f)
		}
		for _, f := range filters {
			groups, _, err := b.admin.Groups(t.Context(), limited(f))
			require.NoError(t, err)
			members := []int64{}
			for _, g := range groups {
				chosen := letterIDs(b.list(limited(g.Filter)))
				require.Len(t, chosen, g.Count, "%+v in %s", g, f)
				require.Contains(t, chosen, g.Example)
				again, _, err := b.admin.Groups(t.Context(), g.Filter)
				require.NoError(t, err)
				require.Len(t, again, 1)
				again[0].Filter = g.Filter
				require.Equal(t, []admin.Group{g}, again, "the group of a group is itself")
				members = append(members, chosen...)
			}
			slices.Sort(members)
			require.Equal(t, letterIDs(b.list(limited(f))), members, "%s: each letter is in one group", f)
		}
		f := filters[random.IntN(len(filters))]
		groups, _, err := b.admin.Groups(t.Context(), f)
		require.NoError(t, err)
		all := admin.Filter{Resolved: "any"}
		for i, g := range groups[:min(9, len(groups))] {
			before, chosen := letterIDs(b.list(limited(all))), letterIDs(b.list(limited(g.Filter)))
			if f.Resolved == "yes" || f.Resolved == "any" { // these can only be deleted
				i = 0
			}
			if act := i % 3; act == 1 { // what is resolved stays, and is not chosen any more
				all.Resolved = ""
				before = letterIDs(b.list(limited(all)))
			}
			act := []func(context.Context, admin.Filter) (int, error){
				func(ctx context.Context, f admin.Filter) (int, error) { return b.admin.Delete(ctx, f) },
				func(ctx context.Context, f admin.Filter) (int, error) {
					return b.admin.Resolve(ctx, f, "known")
				},
				func(ctx context.Context, f admin.Filter) (int, error) { return b.admin.Requeue(ctx, f, admin.Again{}) },
			}[i%3]
			did, err := act(t.Context(), g.Filter)
			require.NoError(t, err)
			require.Equal(t, g.Count, did, "%+v", g)
			left := slices.DeleteFunc(before, func(id int64) bool { return slices.Contains(chosen, id) })
			require.Equal(t, left, letterIDs(b.list(limited(all))), "an action on %+v takes its letters alone", g)
		}
	})
}

// died is about when the letters died.
var died = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// limited chooses as many letters as a page can have.
func limited(f admin.Filter) admin.Filter {
	f.Limit = 1000
	return f
}

func letterIDs(letters []admin.DeadLetter) []int64 {
	found := []int64{}
	for _, letter := range letters {
		found = append(found, letter.ID)
	}
	return found
}
