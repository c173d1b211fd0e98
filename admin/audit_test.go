package admin_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// acts returns the actions of the audit log, the first one first, each in one line.
func (b *bench) acts(filter admin.Filter) []string {
	b.Helper()
	entries, _, err := b.admin.Audit(b.Context(), filter)
	require.NoError(b, err)
	lines := make([]string, len(entries))
	for i, e := range entries {
		target := ""
		if e.Target != (admin.Target{}) {
			require.Equal(b, b.target, e.Target)
			target = " of the outbox"
		}
		lines[len(entries)-1-i] = fmt.Sprintf("%s: %s%s [%s] {%s} %d %s", e.Actor, e.Action, target, e.Subject, e.Filter, e.Affected, e.Note)
	}
	return lines
}

func TestAudit_has_an_entry_for_each_action(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		ctx := admin.ContextWithActor(t.Context(), "ada@office")
		b.append(draft("one", "orders", "a"), draft("two", "orders", "b"), draft("three", "orders", "c"))
		require.NoError(t, b.admin.Pause(ctx, admin.Filter{Target: b.target, All: true}))
		require.NoError(t, b.admin.Pause(ctx, admin.Filter{Target: b.target, All: true}))
		require.NoError(t, b.admin.Resume(ctx, admin.Filter{Target: b.target, All: true}))
		require.NoError(t, b.admin.Pause(ctx, admin.Filter{Target: b.target, Key: "k\xff"}))
		require.NoError(t, b.admin.Resume(ctx, admin.Filter{Target: b.target, Key: "k\xff"}))
		require.NoError(t, b.admin.Pause(ctx, admin.Filter{Target: b.target, Topic: "orders"}))
		require.NoError(t, b.admin.Resume(ctx, admin.Filter{Target: b.target, Topic: "orders"}))
		require.NoError(t, storeSettings(ctx, b.admin, b.target, admin.Settings{PageSize: 10}))
		first := b.messages(admin.Filter{Target: b.target})[0].ID
		require.NoError(t, errorOf(b.admin.Reschedule(ctx, admin.Filter{Target: b.target, ID: first}, time.Time{})))
		require.NoError(t, errorOf(b.admin.Bury(ctx, admin.Filter{Target: b.target, ID: first}, "a test")))
		require.ErrorIs(t, errorOf(b.admin.Bury(ctx, admin.Filter{Target: b.target, ID: first}, "a test")), admin.ErrNotFound)
		letter := b.only(admin.Filter{}).ID
		require.NoError(t, errorOf(b.admin.Resolve(ctx, admin.Filter{ID: letter}, "paid by hand")))
		require.ErrorIs(t, errorOf(b.admin.Resolve(ctx, admin.Filter{ID: letter}, "paid by hand")), admin.ErrRefused)
		require.NoError(t, errorOf(b.admin.Delete(ctx, admin.Filter{ID: letter})))
		require.Equal(t, []string{
			"ada@office: pause of the outbox [] {} 1 ",
			"ada@office: pause of the outbox [] {} 0 ",
			"ada@office: resume of the outbox [] {} 1 ",
			`ada@office: pause key of the outbox [key "k\xff"] {} 1 `,
			`ada@office: resume key of the outbox [key "k\xff"] {} 1 `,
			`ada@office: pause topic of the outbox [topic "orders"] {} 1 `,
			`ada@office: resume topic of the outbox [topic "orders"] {} 1 `,
			`ada@office: set of the outbox [] {} 1 {"page_size":10}`,
			fmt.Sprintf("ada@office: run now of the outbox [message %d] {} 0 ", first),
			fmt.Sprintf("ada@office: bury of the outbox [message %d] {} 1 a test", first),
			fmt.Sprintf("ada@office: resolve of the outbox [dead letter %d] {} 1 paid by hand", letter),
			fmt.Sprintf("ada@office: delete of the outbox [dead letter %d] {} 1 ", letter),
		}, b.acts(admin.Filter{}))
		require.Len(t, b.acts(admin.Filter{Target: b.target}), 12)
		require.Len(t, b.acts(admin.Filter{Action: "pause", Actor: "ada@office", Target: b.target}), 2)
		require.Empty(t, b.acts(admin.Filter{Actor: "ada"}))
		require.Empty(t, b.acts(admin.Filter{Until: time.Now().Add(-time.Hour)}))
		require.Len(t, b.acts(admin.Filter{From: time.Now().Add(-time.Hour), Until: time.Now().Add(time.Hour)}), 12)
	})
}

func TestAudit_pages_have_each_entry_once(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.outboxID()
		for range 7 {
			require.NoError(t, b.admin.Pause(t.Context(), admin.Filter{Target: b.target, All: true}))
		}
		var pages [][]admin.AuditEntry
		filter := admin.Filter{Limit: 3}
		for {
			page, next, err := b.admin.Audit(t.Context(), filter)
			require.NoError(t, err)
			pages = append(pages, page)
			if filter.After = next; next == "" {
				break
			}
		}
		require.Len(t, pages, 3)
		seen := map[int64]bool{}
		for _, page := range pages {
			for _, e := range page {
				seen[e.ID] = true
			}
		}
		require.Len(t, seen, 7)
	})
}

func TestAudit_names_who_acts_if_the_context_does_not(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.outboxID()
	require.NoError(t, b.admin.Pause(t.Context(), admin.Filter{Target: b.target, All: true}))
	named, err := admin.New(b.database.Postbox(), admin.Config{Actor: "night shift"}, nil)
	require.NoError(t, err)
	require.NoError(t, named.Resume(t.Context(), admin.Filter{Target: b.target, All: true}))
	require.NoError(t, named.Pause(admin.ContextWithActor(t.Context(), "\xffada\x00"+strings.Repeat("x", 300)), admin.Filter{Target: b.target, All: true}))
	acts := b.acts(admin.Filter{})
	require.Regexp(t, "^[^@]+@[^@:]+: pause", acts[0])
	require.Regexp(t, "^night shift: resume", acts[1])
	require.Regexp(t, "^\uFFFDada\uFFFDx{246}: pause", acts[2])
}

func TestAudit_filter_is_checked(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	_, _, err := b.admin.Audit(t.Context(), admin.Filter{After: "-1", Limit: 1001})
	require.ErrorContains(t, err, `after: "-1" is not a cursor of this list`)
	require.ErrorContains(t, err, "limit: 1001 is above 1000")
	_, _, err = b.admin.Audit(t.Context(), admin.Filter{Target: admin.Queue("typo")})
	require.ErrorIs(t, err, admin.ErrNotFound)
	_, _, err = b.admin.Audit(t.Context(), admin.Filter{Action: "pausee"})
	require.ErrorIs(t, err, admin.ErrInvalid)
	require.ErrorContains(t, err, "choose one of pause, resume")
	_, _, err = b.admin.Audit(t.Context(), admin.Filter{Actor: "\xff", From: time.Unix(2, 0), Until: time.Unix(1, 0)})
	require.ErrorContains(t, err, `actor: "\xff" is not text`)
	require.ErrorContains(t, err, "time: from ")
}

// If the log cannot be written, the action does not happen.
func TestAudit_G10_no_action_without_its_entry(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(draft("one", "orders", "a"))
		b.bury()
		letter := b.only(admin.Filter{}).ID
		database.Exec(t, "DROP TABLE postbox_audit")
		for what, act := range map[string]func(context.Context) error{
			"pause":   func(ctx context.Context) error { return b.admin.Pause(ctx, admin.Filter{Target: b.target, All: true}) },
			"resolve": func(ctx context.Context) error { return errorOf(b.admin.Resolve(ctx, admin.Filter{ID: letter}, "why")) },
			"delete":  func(ctx context.Context) error { return errorOf(b.admin.Delete(ctx, admin.Filter{ID: letter})) },
			"requeue": func(ctx context.Context) error {
				return errorOf(b.admin.Requeue(ctx, admin.Filter{ID: letter}, admin.Again{}))
			},
		} {
			require.ErrorContains(t, act(t.Context()), "write the audit log", what)
		}
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_spools WHERE paused_at IS NOT NULL"))
		require.True(t, b.only(admin.Filter{}).ResolvedAt.IsZero())
		require.Zero(t, b.pending())
	})
}

// errorOf is the error of an action, whatever it has changed.
func errorOf(_ int, err error) error { return err }
