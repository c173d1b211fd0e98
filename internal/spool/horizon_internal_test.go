package spool

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// The first read of a drainer knows what is final, so the second begins behind what the first has passed over.
func TestHorizon_has_a_mark_before_the_first_read(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	own := newOutbox(t, database, 1)
	var drafts []Draft
	for range 50 {
		drafts = append(drafts, Draft{Topic: "orders", Key: "stuck"})
	}
	require.NoError(t, own.Append(t.Context(), database.DB, Run, drafts))
	database.Exec(t, `UPDATE postbox_messages SET state = 2, available_at = 9000000000000000
		WHERE id = (SELECT MIN(id) FROM postbox_messages)`)
	database.MoveWaiting(t)
	last := database.Count(t, "SELECT MAX(id) FROM postbox_messages")

	// A transaction of any database of the server holds the horizon back, so of other tests too: what counts is a first step in
	// whose two reads none was open.
	require.Eventually(t, func() bool { return hintAfterOneStep(t, database.DB, own) == last }, time.Minute, time.Millisecond)
}

// hintAfterOneStep is where a new drainer reads its lane from after its first step.
func hintAfterOneStep(t *testing.T, db *sql.DB, own *Spool) int {
	t.Helper()
	d, end := newStepped(db, own, 10)
	defer end()
	if err := d.tryOpen(t.Context()); err != nil {
		t.Error(err)
		return 0
	}
	d.step(t.Context())
	if l := d.lanes.held[0]; l != nil {
		return int(l.hint)
	}
	return 0
}

func TestHorizon_moves_when_those_who_ran_have_ended(t *testing.T) {
	t.Parallel()
	var h horizon
	now := time.Now()
	require.Zero(t, h.observe(100, 7, 1))
	h.set(105, 0, now) // transactions 100 to 104 may hold ids up to 7
	require.Zero(t, h.observe(104, 9, 1), "104 still runs")
	require.EqualValues(t, 7, h.observe(105, 12, 1), "all of them have ended")
	h.set(120, 0, now)
	require.EqualValues(t, 7, h.observe(110, 15, 1), "of those who ran then, some still do")
	require.EqualValues(t, 12, h.observe(120, 15, 1))
	require.EqualValues(t, 12, h.observe(1, 15, 1), "it never goes back")
}

// What was given before the mark is final as soon as all who ran have ended, also what nobody has read yet.
func TestHorizon_is_ahead_of_what_was_read(t *testing.T) {
	t.Parallel()
	var h horizon
	now := time.Now()
	h.observe(100, 500, 500)
	h.set(105, 50_000, now)
	require.EqualValues(t, 50_000, h.observe(105, 1000, 500))
	require.False(t, h.wantsMark(now.Add(time.Hour)), "what is read is final already")
	h.observe(105, 50_001, 500)
	require.True(t, h.wantsMark(now))
}

func TestHorizon_wants_a_mark_when_there_is_something_new(t *testing.T) {
	t.Parallel()
	var h horizon
	now := time.Now()
	require.False(t, h.wantsMark(now), "nothing was seen")
	h.observe(100, 7, 1)
	require.True(t, h.wantsMark(now))
	h.set(105, 0, now)
	require.False(t, h.wantsMark(now.Add(time.Hour)), "there is one")
	h.observe(105, 7, 1)
	require.False(t, h.wantsMark(now.Add(time.Hour)), "nothing new was seen")
	h.observe(105, 8, 1)
	require.False(t, h.wantsMark(now), "it is too early")
	require.True(t, h.wantsMark(now.Add(markInterval)))
	h.observe(105, 9, markMessages-2)
	require.True(t, h.wantsMark(now), "much was read")
}

func TestHorizon_of_a_database_with_one_writer_and_of_one_without_horizon(t *testing.T) {
	t.Parallel()
	var one, none horizon
	one.observe(1, 5, 1)
	one.set(0, 0, time.Now())
	require.EqualValues(t, 5, one.observe(1, 8, 1))
	none.observe(0, 5, 1)
	none.set(1, 0, time.Now())
	require.Zero(t, none.observe(0, 8, 1))
}
