package drain

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// The first read of a drainer knows what is final, so the second begins behind what the first has
// passed over.
func TestWatermark_has_a_mark_before_the_first_read(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	own := newOutbox(t, database)
	var drafts []spool.Draft
	for range 50 {
		drafts = append(drafts, spool.Draft{Topic: "orders", Key: "stuck"})
	}
	require.NoError(t, own.Append(t.Context(), database.DB, spool.Run, drafts))
	database.Exec(t, `UPDATE postbox_messages SET state = 2, available_at = 9000000000000000
		WHERE id = (SELECT MIN(id) FROM postbox_messages)`)
	database.MoveWaiting(t)
	last := database.Count(t, "SELECT MAX(id) FROM postbox_messages")

	// A transaction of any database of the server holds the watermark back, so of other tests too:
	// what counts is a first step in whose two reads none was open.
	require.Eventually(t, func() bool { return hintAfterOneStep(t, database.DB, own) == last }, time.Minute, time.Millisecond)
}

// hintAfterOneStep is where a new drainer reads its lane from after its first step.
func hintAfterOneStep(t *testing.T, db *sql.DB, own *spool.Spool) int {
	t.Helper()
	d, end := newStepped(db, own, 10)
	defer end()
	if err := d.tryOpen(t.Context()); err != nil {
		t.Error(err)
		return 0
	}
	d.step(t.Context())
	if l := d.lanes.held[0]; l != nil {
		return int(l.cursor)
	}
	return 0
}

func TestWatermark_moves_when_those_that_ran_have_ended(t *testing.T) {
	t.Parallel()
	var h watermark
	now := time.Now()
	require.Zero(t, h.observe(nil, 7, 1, now))
	h.set(105, 0, nil, now) // transactions before 105 may hold ids up to 7
	require.Zero(t, h.observe([]int64{104, 107}, 9, 1, now), "104 still runs")
	require.EqualValues(t, 7, h.observe([]int64{107}, 12, 1, now), "all of them have ended")
	h.set(120, 0, nil, now)
	require.EqualValues(t, 7, h.observe([]int64{110}, 15, 1, now), "of those that ran then, one still does")
	require.EqualValues(t, 12, h.observe(nil, 15, 1, now))
	require.EqualValues(t, 12, h.observe([]int64{1}, 15, 1, now), "it never goes back")
}

// What was given before the mark is final as soon as all that ran have ended, also what nobody has
// read yet.
func TestWatermark_may_be_ahead_of_the_ids_read(t *testing.T) {
	t.Parallel()
	var h watermark
	now := time.Now()
	h.observe(nil, 500, 500, now)
	h.set(105, 50_000, nil, now)
	require.EqualValues(t, 50_000, h.observe(nil, 1000, 500, now))
	require.False(t, h.wantsMark(now.Add(time.Hour)), "what is read is final already")
	h.observe(nil, 50_001, 500, now)
	require.True(t, h.wantsMark(now))
}

func TestWatermark_wants_a_mark_when_there_is_something_new(t *testing.T) {
	t.Parallel()
	var h watermark
	now := time.Now()
	require.False(t, h.wantsMark(now), "nothing was seen")
	h.observe(nil, 7, 1, now)
	require.True(t, h.wantsMark(now))
	h.set(105, 0, nil, now)
	require.False(t, h.wantsMark(now.Add(time.Hour)), "there is one")
	h.observe(nil, 7, 1, now)
	require.False(t, h.wantsMark(now.Add(time.Hour)), "nothing new was seen")
	h.observe(nil, 8, 1, now)
	require.False(t, h.wantsMark(now), "it is too early")
	require.True(t, h.wantsMark(now.Add(markInterval)))
	h.observe(nil, 9, markMessages-2, now)
	require.True(t, h.wantsMark(now), "much was read")
}

// Messages that reads leave out are not seen. That ids were given shows that there may be some.
func TestWatermark_wants_a_mark_for_messages_that_reads_leave_out(t *testing.T) {
	t.Parallel()
	var h watermark
	now := time.Now()
	h.given = 100
	require.True(t, h.wantsMark(now))
	h.set(105, 100, nil, now)
	require.EqualValues(t, 100, h.observe(nil, 0, 0, now))
	later := now.Add(markInterval)
	require.False(t, h.wantsMark(later), "all of them are final")
	h.given = 101
	require.True(t, h.wantsMark(later))

	h = watermark{given: 2000}
	require.EqualValues(t, 2000-lookBack, h.lookFrom())
	h.set(1, 1500, nil, now) // those up to 2000 may belong to transactions that are open
	require.EqualValues(t, 1500, h.observe(nil, 0, 0, now))
	require.True(t, h.wantsMark(later), "by now they have ended")
	h.set(1, 1900, nil, now) // the others were rolled back
	require.EqualValues(t, 1900, h.observe(nil, 0, 0, now))
	require.False(t, h.wantsMark(later), "all that were given are final")
}

func TestWatermark_of_a_database_with_one_writer_and_of_one_without_watermark(t *testing.T) {
	t.Parallel()
	var one, none watermark
	now := time.Now()
	one.observe([]int64{1}, 5, 1, now)
	one.set(0, 0, []int64{1}, now)
	require.EqualValues(t, 5, one.observe([]int64{1}, 8, 1, now))
	none.observe([]int64{0}, 5, 1, now)
	none.set(1, 0, []int64{0}, now)
	require.Zero(t, none.observe([]int64{0}, 8, 1, now))
}

// Without its lock at the time of the question, and running after it: both must hold.
func TestWatermark_passes_a_transaction_that_had_not_written(t *testing.T) {
	t.Parallel()
	var h watermark
	now := time.Now()
	h.observe([]int64{100}, 7, 1, now)
	h.set(105, 0, []int64{100}, now)
	require.True(t, h.wantsWriters(now), "the first mark cannot wait")
	h.answer(map[uint32]bool{103: true}, now, 0)
	require.Zero(t, h.observe([]int64{100, 103}, 7, 1, now), "103 has written, and may end soon")
	require.EqualValues(t, 7, h.observe([]int64{100}, 12, 1, now))

	later := now.Add(markInterval)
	h.set(110, 0, []int64{100}, later)
	require.False(t, h.wantsWriters(later.Add(askInterval)), "it may be a short one")
	require.EqualValues(t, 7, h.observe([]int64{100}, 12, 1, later), "it may have written since")
	later = later.Add(askPatience)
	require.True(t, h.wantsWriters(later))
	h.answer(map[uint32]bool{}, later, 0)
	require.False(t, h.wantsWriters(later.Add(time.Hour)), "there is an answer")
	require.EqualValues(t, 12, h.observe([]int64{100}, 15, 1, later))

	h.set(120, 0, []int64{100}, later)
	require.False(t, h.wantsWriters(later), "it was asked a moment ago")
	require.True(t, h.wantsWriters(later.Add(askInterval)), "a transaction that was passed before is not a short one")
}

func TestWatermark_watches_a_transaction_that_has_written(t *testing.T) {
	t.Parallel()
	var h watermark
	now := time.Now()
	h.observe(nil, 7, 1, now)
	h.set(105, 0, nil, now)
	require.EqualValues(t, 7, h.observe([]int64{106}, 12, 1, now))
	h.set(110, 20, []int64{106}, now)
	later := now.Add(askPatience)
	h.answer(map[uint32]bool{106: true}, later, 0)
	require.EqualValues(t, 7, h.observe([]int64{106}, 20, 1, later), "it may end soon")
	later = now.Add(latePatience)
	require.EqualValues(t, 20, h.observe([]int64{106}, 20, 1, later))
	_, some := h.late.ended([]int64{106}, later)
	require.False(t, some)

	h.observe([]int64{106}, 30, 1, later)
	h.set(120, 0, []int64{106}, later)
	require.False(t, h.wantsWriters(later.Add(time.Hour)), "nothing is to be asked of it any more")
	require.EqualValues(t, 30, h.observe([]int64{106}, 30, 1, later))
	place, some := h.late.ended([]int64{107}, later)
	require.True(t, some)
	require.EqualValues(t, 7, place, "where the watermark was when it was passed")
}

// Each late transaction that ends costs a read, so there is more patience where many last long, and
// less when they are gone.
func TestLate_waits_longer_while_many_transactions_are_late(t *testing.T) {
	t.Parallel()
	var l late
	now := time.Now()
	for range 20 {
		l.watch([]int64{1}, 5)
		l.ended(nil, now)
	}
	require.Equal(t, lateMost, l.waits())
	for range 20 {
		l.watch([]int64{1}, 5)
		now = now.Add(lateShare * lateMost)
		l.ended(nil, now)
	}
	require.Equal(t, latePatience, l.waits())
}
