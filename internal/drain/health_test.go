package drain_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/health"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// within is how fresh the answer of the database must be in these tests.
const within = 3 * time.Second

// reporting is a drainer whose health is asked for.
type reporting struct{ *drain.Drainer }

func (r reporting) Health() []health.State { return []health.State{r.Drainer.Health()} }

func isReady(d *drain.Drainer) bool { return health.IsReady(within, reporting{d}) == nil }

func TestDrainer_is_ready_while_its_database_answers(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		handler := &recorder{}
		r := b.start(database.DB, handler, config("one"))
		b.Eventually(func() bool { return isReady(r.Drainer) }, "it is ready")

		// An operator's pause is no reason to be called unhealthy: the settings are read.
		database.Exec(t, "UPDATE postbox_spools SET paused_at = 1, version = version + 1")
		paused := time.Now()
		b.Eventually(func() bool { return r.Health().Answered.After(paused.Add(time.Second)) }, "it goes on asking during a pause")
		require.True(t, isReady(r.Drainer))

		r.stop(t)
		require.Equal(t, health.Stopped, r.Health().Phase)
		require.NoError(t, health.Alive(reporting{r.Drainer}))
		require.False(t, isReady(r.Drainer))
	})
}

func TestDrainer_is_alive_and_not_ready_while_its_database_is_away(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	b := newBench(t, database)
	handle := database.Open(t)
	require.NoError(t, handle.Close())
	r := b.start(handle, &recorder{}, config("one"))
	b.Eventually(func() bool { return r.Health().Err != nil }, "it has asked in vain")
	require.Equal(t, health.Starting, r.Health().Phase)
	require.NoError(t, health.Alive(reporting{r.Drainer}))
	require.ErrorContains(t, health.IsReady(within, reporting{r.Drainer}), "database is closed")
	r.stop(t)
}

// The settings are read each second, and say nothing about messages that cannot be read.
func TestDrainer_is_not_ready_while_its_messages_cannot_be_read(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	b := newBench(t, database)
	r := b.start(database.DB, &recorder{}, config("one"))
	b.Eventually(func() bool { return isReady(r.Drainer) }, "it is ready")
	database.Exec(t, "ALTER TABLE postbox_messages RENAME COLUMN message_id TO hidden")
	b.Eventually(func() bool { return !isReady(r.Drainer) }, "it is not ready any more")
	require.ErrorContains(t, health.IsReady(within, reporting{r.Drainer}), "message_id")
	database.Exec(t, "ALTER TABLE postbox_messages RENAME COLUMN hidden TO message_id")
	b.Eventually(func() bool { return isReady(r.Drainer) }, "it is ready again")
	r.stop(t)
}

func TestDrainer_whose_run_panics_is_not_alive(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	d := drain.New(nil, b.Spool, &recorder{}, config("one"), watermill.NopLogger{})
	require.Panics(t, func() { _ = d.Run(t.Context()) })
	require.ErrorContains(t, health.Alive(reporting{d}), "Run panicked")
}

func TestDrainer_that_cannot_go_on_is_not_alive(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	other := spool.New(b.Statements, "a name that ends with a space ")
	d := drain.New(b.Database.DB, other, &recorder{}, config("one"), watermill.NopLogger{})
	require.Equal(t, health.NotStarted, d.Health().Phase)
	err := d.Run(t.Context())
	require.ErrorIs(t, err, spool.ErrName)
	require.ErrorIs(t, health.Alive(reporting{d}), err)
}
