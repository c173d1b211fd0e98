package admin_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestSettings_say_what_is_wrong_and_what_to_do(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.outboxID()
	store := func(settings admin.Settings) error { return storeSettings(t.Context(), b.admin, b.target, settings) }
	for want, settings := range map[string]admin.Settings{
		"PageSize: -1 is not between 1 and 10000":      {PageSize: -1},
		"PageSize: 10001 is not":                       {PageSize: 10_001},
		"Concurrency: -2 is not between 1 and 10000":   {Concurrency: -2},
		"Concurrency: 10001 is not":                    {Concurrency: 10_001},
		"PollMax: -1ns is not between 1ms and 1h0m0s":  {PollMax: -1},
		"PerSecond: 2e+06 is not":                      {PerSecond: 2e6},
		"PerSecond: -Inf is not between 0 and 1000000": {PerSecond: math.Inf(-1)},
		"MaxConcurrent: 9000000000 is not":             {MaxConcurrent: 9e9},
		"PollMax: 5ns is not":                          {PollMax: 5},
		"PollMax: 1h0m0.000000001s is not":             {PollMax: time.Hour + 1},
		"Attempts: -2 is negative: use -1":             {Attempts: -2},
		"History: 7ns is less than a second: give it":  {History: 7},
		"Retention: 30ns is less than a second: give":  {Retention: 30},
	} {
		require.ErrorContains(t, store(settings), want)
	}
	both := admin.Settings{PageSize: -1, Retention: 30}
	require.ErrorContains(t, store(both), "PageSize")
	require.ErrorContains(t, store(both), "Retention")
	require.ErrorContains(t, store(both), b.target.String())
	require.Zero(t, b.info().Settings, "nothing is stored")
	for _, settings := range []admin.Settings{
		{},
		{PageSize: 1, Concurrency: 1, PollMax: time.Millisecond, Attempts: 1, PerSecond: 0.1, MaxConcurrent: 1, History: time.Second, Retention: time.Second},
		{PageSize: 10_000, Concurrency: 10_000, PollMax: time.Hour, Attempts: -1, PerSecond: -1, MaxConcurrent: -1, History: -1, Retention: -1},
	} {
		require.NoError(t, store(settings))
	}
}

// Covers feature W14.
func TestChangeSettings_replaces_all_settings(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.outboxID()
		settings := admin.Settings{
			PageSize: 20, Concurrency: 3, PollMax: 10 * time.Second, Attempts: -1, PerSecond: 2.5, MaxConcurrent: -1,
			History: 7 * 24 * time.Hour, Retention: -1,
		}
		require.NoError(t, storeSettings(t.Context(), b.admin, b.target, settings))
		require.Equal(t, settings, b.info().Settings)
		require.NoError(t, storeSettings(t.Context(), b.admin, b.target, admin.Settings{Attempts: 2}))
		require.Equal(t, admin.Settings{Attempts: 2}, b.info().Settings)

		b.exec("UPDATE postbox_spools SET settings = 'nonsense'")
		require.Zero(t, b.info().Settings, "the rest of the overview is there")
		require.NoError(t, storeSettings(t.Context(), b.admin, b.target, admin.Settings{}))
		require.Zero(t, b.info().Settings)
	})
}

func TestChangeSettings_loses_no_change_of_another_operator(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.outboxID()
		var operators sync.WaitGroup
		errs := make([]error, 2)
		for i, change := range []func(*admin.Settings) error{
			func(s *admin.Settings) error { s.Attempts++; return nil },
			func(s *admin.Settings) error { s.Concurrency++; return nil },
		} {
			operators.Go(func() {
				for range 5 {
					_, err := b.admin.ChangeSettings(t.Context(), b.target, change)
					errs[i] = errors.Join(errs[i], err)
				}
			})
		}
		operators.Wait()
		require.NoError(t, errors.Join(errs...))
		want := admin.Settings{Attempts: 5, Concurrency: 5}
		require.Equal(t, want, b.info().Settings)

		_, err := b.admin.ChangeSettings(t.Context(), b.target, func(s *admin.Settings) error {
			s.Attempts = 9
			return errBroker
		})
		require.ErrorIs(t, err, errBroker)
		_, err = b.admin.ChangeSettings(t.Context(), b.target, func(s *admin.Settings) error {
			s.Attempts = -7
			return nil
		})
		require.ErrorIs(t, err, admin.ErrInvalid)
		require.Equal(t, want, b.info().Settings, "nothing of it is stored")
		changed, err := b.admin.ChangeSettings(t.Context(), b.target, func(s *admin.Settings) error {
			s.PageSize = 7
			return nil
		})
		require.NoError(t, err)
		want.PageSize = 7
		require.Equal(t, want, changed)
		acts, _, err := b.admin.Audit(t.Context(), admin.Filter{Action: "set"})
		require.NoError(t, err)
		require.Len(t, acts, 11)
		require.Equal(t, `{"page_size":7,"concurrency":5,"attempts":5}`, acts[0].Note)
	})
}

// Covers feature W14.
func TestChangeSettings_applies_to_running_drainers(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		var running atomic.Int32
		gate := make(chan struct{})
		h := newHandler(func(m *spool.Message) error {
			if m.Topic == "fails" {
				return errBroker
			}
			running.Add(1)
			defer running.Add(-1)
			<-gate
			return nil
		})
		b.drainWith(database.DB, h, func(c *drain.Config) { c.Workers = 1 })
		open := sync.OnceFunc(func() { close(gate) })
		t.Cleanup(open)
		for range 20 {
			b.append(draft(postbox.NewMessageID(), "orders", ""))
		}
		b.eventually(func() bool { return running.Load() == 1 }, "one at a time, as configured")
		require.NoError(t, storeSettings(t.Context(), b.admin, b.target, admin.Settings{Concurrency: 7, History: time.Hour, Attempts: 5}))
		require.Eventually(t, func() bool { return running.Load() == 7 }, applied, 2*time.Millisecond)
		require.NoError(t, storeSettings(t.Context(), b.admin, b.target, admin.Settings{Concurrency: 2, History: time.Hour, Attempts: 5}))
		require.Eventually(t, func() bool { // as handlers end, fewer begin
			if running.Load() > 2 {
				gate <- struct{}{}
				b.append(draft(postbox.NewMessageID(), "orders", ""))
			}
			return running.Load() <= 2
		}, applied, 20*time.Millisecond)
		open()
		b.eventually(func() bool { return b.pending() == 0 }, "all are handled")
		b.append(draft("kept", "orders", ""))
		b.eventually(func() bool { return b.info().Done > 0 && b.pending() == 0 }, "done messages are kept")

		b.append(draft("fails", "fails", ""))
		b.eventually(func() bool { return b.dead() == 1 }, "it is dead")
		require.Equal(t, 5, b.list(admin.Filter{})[0].Attempts, "after as many attempts as the operator says")
	})
}

// storeSettings stores settings in place of those that are stored.
func storeSettings(ctx context.Context, a *admin.Admin, target admin.Target, settings admin.Settings) error {
	_, err := a.ChangeSettings(ctx, target, func(stored *admin.Settings) error {
		*stored = settings
		return nil
	})
	return err
}
