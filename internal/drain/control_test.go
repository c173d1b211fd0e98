package drain_test

import (
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/keyhash"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// say changes what operators say of the spool, as they do: with a new version.
func (b *bench) say(change string, args ...any) {
	b.T.Helper()
	b.Database.Exec(b.T, "UPDATE postbox_spools SET "+change+", version = version + 1 WHERE name = ?", append(args, b.Spool.Name())...)
}

func (b *bench) set(settings spool.Settings) {
	b.T.Helper()
	text, err := settings.Encode()
	require.NoError(b.T, err)
	b.say("settings = ?", text)
}

func (b *bench) pauseKey(key string) {
	b.T.Helper()
	b.sayOf("INSERT INTO postbox_pauses (spool, key_hash, ordering_key, paused_at) SELECT id, ?, ?, 1 FROM postbox_spools WHERE name = ?",
		keyhash.Of(key), []byte(key), b.Spool.Name())
}

func (b *bench) resumeKey(key string) {
	b.T.Helper()
	b.sayOf("DELETE FROM postbox_pauses WHERE key_hash = ?", keyhash.Of(key))
}

// sayOf changes something else and the version, in one transaction.
func (b *bench) sayOf(query string, args ...any) {
	b.T.Helper()
	require.NoError(b.T, spool.InTx(b.T.Context(), b.Database.DB, b.Statements, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(b.T.Context(), b.Database.Bind(query), args...); err != nil {
			return err
		}
		_, err := tx.ExecContext(b.T.Context(), b.Database.Bind("UPDATE postbox_spools SET version = version + 1 WHERE name = ?"), b.Spool.Name())
		return err
	}))
}

// Covers feature W14.
func TestDrainer_of_a_paused_queue_finishes_running_messages_and_hands_out_nothing(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.Append(database.DB, drafts(20, func(i int) string { return fmt.Sprint(i % 10) })...)
		handler := newStanding()
		c := config("one")
		c.BatchSize, c.Workers = 1, 5
		r := b.start(database.DB, handler, c)
		for range 5 {
			signal(t, handler.entered, "five run")
		}
		b.say("paused_at = 1")
		b.Eventually(func() bool { paused, _, _ := r.Applied(); return paused }, "it hears it")
		require.Equal(t, 20, b.Pending(), "what runs is left alone")
		for range 5 {
			handler.proceed <- spool.Outcome{Verdict: spool.Done}
		}
		b.Eventually(func() bool { return b.Pending() == 15 }, "what runs ends and is settled")
		b.Append(database.DB, draft("new", "new"))
		r.Wake()
		b.never(func() bool { return len(handler.entered) > 0 }, 100*time.Millisecond, "nothing is handed out")
		require.Empty(t, r.InFlight())

		b.say("paused_at = NULL")
		for range 5 {
			signal(t, handler.entered, "it goes on")
		}
		for range 16 {
			handler.proceed <- spool.Outcome{Verdict: spool.Done}
		}
		b.Eventually(func() bool { return b.Pending() == 0 }, "all are settled")
	})
}

// Covers feature W14.
func TestDrainer_that_starts_paused_becomes_ready_and_hands_out_nothing(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.Append(database.DB, drafts(5, func(int) string { return "" })...)
		b.say("paused_at = 1")
		handler := &recorder{}
		r := b.start(database.DB, handler, config("one"))
		signal(t, r.Ready(), "it runs")
		require.Equal(t, 5, b.Pending())
		require.Empty(t, handler.ids())
		b.say("paused_at = NULL")
		b.Eventually(func() bool { return b.Pending() == 0 }, "all are settled")
	})
}

// More messages of the paused key wait than a drainer has in memory, before and after those of
// others. Also covers feature W14.
func TestDrainer_F11_a_paused_key_does_not_hold_up_others(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		paused, other := keyOf(3), ""
		for i := 0; other == "" || other == paused; i++ { // in the same lane
			if key := fmt.Sprint("other ", i); keyhash.Lane(keyhash.Of(key), lanes) == 3 {
				other = key
			}
		}
		const messages = 400
		of := func(i int) string { return []string{paused, paused, paused, other}[i%4] }
		b.Append(database.DB, drafts(messages, of)...)
		b.pauseKey(paused)
		c := config("one")
		require.Less(t, 2*c.PageSize, messages/4*3)
		handler := &recorder{}
		b.start(database.DB, handler, c)
		b.Eventually(func() bool { return b.Pending() == messages/4*3 }, "the other key flows")
		b.Append(database.DB, drafts(messages+20, of)[messages:]...)
		b.Eventually(func() bool { return b.Pending() == messages/4*3+15 }, "what is new of it too")
		require.Len(t, handler.ids(), messages/4+5)
		for _, id := range handler.ids() {
			require.True(t, id[4] == '3' || id[4] == '7' || id[4] == '1' || id[4] == '5' || id[4] == '9', id)
		}
		b.resumeKey(paused)
		b.Eventually(func() bool { return b.Pending() == 0 }, "the key goes on")
		require.True(t, slices.IsSorted(handler.ids()[messages/4+5:]), "in its order")
	})
}

// The key is paused while its messages wait in the memory of the drainer, behind one that runs.
// Also covers feature W14.
func TestDrainer_with_a_paused_key_finishes_running_messages(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.Append(database.DB, drafts(10, func(int) string { return "key" })...)
		handler := newStanding()
		c := config("one")
		c.BatchSize, c.PageSize = 1, 10*lanes // one read has all ten
		r := b.start(database.DB, handler, c)
		signal(t, handler.entered, "one runs")
		b.Eventually(func() bool { _, _, waiting := r.Applied(); return waiting == 9 }, "nine wait")
		b.pauseKey("key")
		b.Eventually(func() bool { _, _, waiting := r.Applied(); return waiting == 0 }, "it hears it")
		require.Equal(t, 10, b.Pending(), "nothing changes")
		handler.proceed <- spool.Outcome{Verdict: spool.Done}
		b.Eventually(func() bool { return b.Pending() == 9 }, "it is settled")
		b.never(func() bool { return len(handler.entered) > 0 }, 100*time.Millisecond, "the others wait")
		b.resumeKey("key")
		for range 9 {
			signal(t, handler.entered, "they go on")
			handler.proceed <- spool.Outcome{Verdict: spool.Done}
		}
		b.Eventually(func() bool { return b.Pending() == 0 }, "all are settled")
	})
}

// Pages and pages of rows that may not be handled now stand before the one that may: scheduled for
// later, parked, and behind a parked one.
func TestDrainer_F11_waiting_rows_starve_no_other_message(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		c := config("one")
		c.Head = drain.HeadPark
		var list []spool.Draft
		for i := range 3 * 2 * c.PageSize {
			d := draft(fmt.Sprintf("waiting %03d", i), []string{"", "later", "parked"}[i%3])
			if i%3 < 2 {
				d.Delay = time.Hour
			}
			list = append(list, d)
		}
		b.Append(database.DB, list...)
		handler := newChoosy("waiting 002", postbox.Permanent(errTest))
		b.start(database.DB, handler, c)
		b.Eventually(func() bool { return b.parked() == 1 }, "it is parked, and its key with it")
		b.Append(database.DB, drafts(100, func(i int) string { return []string{"", "a", "b", "later"}[i%4] })...)
		b.Eventually(func() bool { return len(handler.ids()) == 100 }, "the others flow")
		b.Eventually(func() bool { return b.Pending() == len(list) }, "and are settled")
	})
}

func TestDrainer_applies_settings_while_it_runs(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.Append(database.DB, drafts(200, func(int) string { return "" })...)
		handler := newStanding()
		c := config("one")
		c.BatchSize, c.Workers, c.PageSize = 1, 2, 100
		r := b.start(database.DB, handler, c)
		running := func(n int) {
			t.Helper()
			b.Eventually(func() bool { return r.InFlight()["orders"] == n }, fmt.Sprint(n, " run"))
			b.never(func() bool { return r.InFlight()["orders"] != n }, 50*time.Millisecond, "and no more")
		}
		heard := func(most int) {
			t.Helper()
			b.Eventually(func() bool { _, limit, _ := r.Applied(); return limit == most }, "it hears it")
		}
		end := func(n int) {
			t.Helper()
			before := b.Pending()
			for range n {
				handler.proceed <- spool.Outcome{Verdict: spool.Done}
			}
			b.Eventually(func() bool { return b.Pending() == before-n }, "some end")
		}
		running(2)
		b.set(spool.Settings{Concurrency: 7})
		running(7)
		b.set(spool.Settings{Concurrency: 3})
		heard(3)
		require.Equal(t, 7, r.InFlight()["orders"], "what runs goes on")
		end(5)
		running(3)
		b.set(spool.Settings{Concurrency: 150, PageSize: 10})
		b.Eventually(func() bool { return r.InFlight()["orders"] >= 15 }, "more run")
		b.never(func() bool { return r.InFlight()["orders"] > 20+lanes }, 100*time.Millisecond, "two pages, or little more")
		b.set(spool.Settings{Concurrency: 150})
		running(150)
		b.set(spool.Settings{})
		heard(2)
		require.Equal(t, 150, r.InFlight()["orders"], "nothing changes")
		end(149)
		running(2)
		end(46)
	})
}

func TestDrainer_settings_of_polling_attempts_and_history(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		c := config("one")
		c.PollMin, c.PollMax = time.Hour, time.Hour
		r := b.start(database.DB, newChoosy("poison", errTest), c)
		signal(t, r.Ready(), "it has looked")
		b.Append(database.DB, draft("one", ""))
		b.set(spool.Settings{PollMax: 5 * time.Millisecond, Attempts: 1, History: time.Hour})
		b.Eventually(func() bool { return b.Pending() == 0 && b.history() == 1 }, "it is found, and kept")
		b.Append(database.DB, draft("poison", ""), draft("two", ""))
		b.Eventually(func() bool { return b.Pending() == 0 && b.history() == 2 && b.Dead() == 1 }, "one attempt is enough")
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_failures"))
		b.set(spool.Settings{PollMax: 5 * time.Millisecond, History: -1, Concurrency: 3})
		b.Eventually(func() bool { _, most, _ := r.Applied(); return most == 3 }, "it hears it")
		b.Append(database.DB, draft("three", ""))
		b.Eventually(func() bool { return b.Pending() == 0 }, "it is done")
		require.Equal(t, 2, b.history(), "and not kept")
	})
}

func TestDrainer_settings_of_limits(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	handler := newStanding()
	c := config("one")
	c.BatchSize, c.Limits.Total.MaxConcurrent = 1, lanes+1
	r := b.start(b.Database.DB, handler, c)
	list := drafts(8, func(int) string { return "" })
	b.Append(b.Database.DB, list[:4]...)
	for range 4 {
		signal(t, handler.entered, "four workers have one each")
	}
	b.set(spool.Settings{MaxConcurrent: 2, Concurrency: 5})
	b.Eventually(func() bool { _, most, _ := r.Applied(); return most == 5 }, "it hears it")
	b.Append(b.Database.DB, list[4:]...)
	for range 4 {
		handler.proceed <- spool.Outcome{Verdict: spool.Done}
	}
	signal(t, handler.entered, "one goes on")
	signal(t, handler.entered, "and one more")
	b.never(func() bool { return len(handler.entered) > 0 }, 100*time.Millisecond, "the others wait")
	b.set(spool.Settings{MaxConcurrent: -1, PerSecond: 1000})
	signal(t, handler.entered, "without the limit they go on")
	signal(t, handler.entered, "both")
	for range 4 {
		handler.proceed <- spool.Outcome{Verdict: spool.Done}
	}
	b.Eventually(func() bool { return b.Pending() == 0 }, "all are done")
}

func TestDrainer_settings_that_cannot_be_read_change_nothing(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	b := newBench(t, database)
	handler := newStanding()
	c := config("one")
	c.BatchSize, c.Workers = 1, 2
	r := b.start(database.DB, handler, c)
	signal(t, r.Ready(), "it has looked")
	b.say("settings = ?", "{")
	b.Append(database.DB, drafts(10, func(int) string { return "" })...)
	b.Eventually(func() bool { return r.InFlight()["orders"] == 2 }, "it goes on as configured")
	b.set(spool.Settings{Concurrency: 4})
	b.Eventually(func() bool { return r.InFlight()["orders"] == 4 }, "and obeys what it can read")
	for range 10 {
		handler.proceed <- spool.Outcome{Verdict: spool.Done}
	}
	b.Eventually(func() bool { return b.Pending() == 0 }, "all are settled")
}

// An operator takes a parked head away, and in the same moment something new of its key is stored.
// What stood behind the head goes first, although the drainer has read beyond it. Also covers
// feature N8.
func TestDrainer_G3_messages_behind_a_removed_head_go_before_new_ones(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		handler := newChoosy("00000", postbox.Permanent(errTest))
		c := config("one")
		c.Head, c.PollMin, c.PollMax = drain.HeadPark, time.Hour, time.Hour
		b.Append(database.DB, drafts(3, func(int) string { return "key" })...)
		r := b.start(database.DB, handler, c)
		b.Eventually(func() bool { return b.parked() == 1 }, "it is parked")
		for i := range 5 { // each one moves the reading on
			b.Append(database.DB, draft(fmt.Sprint("other ", i), ""))
			r.Wake()
			b.Eventually(func() bool { return len(handler.ids()) == i+1 }, "others flow")
		}
		require.NoError(t, spool.InTx(t.Context(), database.DB, b.Statements, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(t.Context(), "DELETE FROM postbox_messages WHERE state = 2"); err != nil {
				return err
			}
			b.Append(tx, draft("new", "key"))
			_, err := tx.ExecContext(t.Context(), "UPDATE postbox_spools SET version = version + 1")
			return err
		}))
		r.Wake()
		b.Eventually(func() bool { return b.Pending() == 0 }, "all are settled")
		require.Equal(t, []string{"00001", "00002", "new"}, handler.ids()[5:])
	})
}
