package drain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/tail"
)

// newIdle returns a drainer that is idle.
func newIdle(t *testing.T) *tailed {
	t.Helper()
	w := newTailed(t)
	w.begin()
	w.becomesIdle()
	return w
}

// becomesIdle lets the drainer become idle. Transactions of other tests keep a mark pending for a
// while.
func (w *tailed) becomesIdle() {
	w.Helper()
	deadline := time.Now().Add(time.Minute)
	for !w.idle.active {
		require.True(w.T, time.Now().Before(deadline), "the drainer does not become idle")
		if w.reader.watermark.pending {
			w.poll()
		}
		w.configured.Feed.Hear(time.Now())
		w.pace.at, w.pace.pause = time.Time{}, w.pollMost()
		w.step(w.Context())
		require.Empty(w.T, w.trouble.end)
	}
}

// hears is a step of the drainer while the server of the log lives.
func (w *tailed) hears() {
	w.Helper()
	w.configured.Feed.Hear(time.Now())
	w.pace.notBefore = time.Time{} // the polls before it may have been slow
	w.step(w.Context())
	require.Empty(w.T, w.trouble.end)
}

// looks is a step with a look.
func (w *tailed) looks() {
	w.Helper()
	w.idle.lookAt = time.Time{}
	w.hears()
}

func TestIdle_renews_its_leases_and_its_membership_with_one_statement(t *testing.T) {
	t.Parallel()
	w := newIdle(t)
	expires := func(table string) int {
		return w.db.Count(t, "SELECT (MIN(expires_at) / 1000)::bigint FROM "+table)
	}
	members, marks := expires("postbox_members"), w.reader.watermark.given
	for range 3 {
		w.looks()
		require.True(t, w.idle.active)
	}
	require.Greater(t, expires("postbox_members"), members)
	require.Equal(t, marks, w.reader.watermark.given, "there was no read")
	require.Equal(t, w.idle.lookAt, w.pace.at)
	require.Equal(t, w.idle.lookAt, w.pace.renewAt)
	require.True(t, w.controlDue().After(w.idle.lookAt), "nor are the settings read in between")
	require.LessOrEqual(t, w.wait(), idlePulse)
}

// A drainer that is told nothing polls.
func TestIdle_needs_a_log_that_tells_each_change(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]func(w *tailed){
		"it tells less":            func(w *tailed) { w.configured.Feed.Tell(false) },
		"it is not read any more":  func(w *tailed) { w.configured.Feed.Begin() },
		"its server is silent":     func(w *tailed) { w.configured.Feed.Hear(time.Now().Add(-time.Minute)) },
		"a lane is leaving":        func(w *tailed) { w.lanes.held[0].leaving = true },
		"a lane is missing":        func(w *tailed) { delete(w.lanes.held, 1) },
		"there is another member":  func(w *tailed) { w.lease.members = 2 },
		"it is stopping":           func(w *tailed) { w.lease.stopping = true },
		"a topic is left out":      func(w *tailed) { w.control.topics = []string{"orders"} },
		"a transaction is watched": func(w *tailed) { w.reader.watermark.late.watch([]int64{1}, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newIdle(t)
			w.configured.Feed.Hear(time.Now())
			ends(w)
			require.NoError(t, w.idle.beIdle(t.Context()))
			require.False(t, w.idle.active)
			now := time.Now()
			require.False(t, w.pace.at.After(now.Add(w.pollMost())), "it polls as soon as any other")
			require.False(t, w.pace.renewAt.After(now.Add(w.config.Renew)), "and renews its leases as soon")
			require.False(t, w.controlDue().After(now.Add(controlInterval+controlGrace)), "and reads the settings as soon")
			w.pace.at = time.Time{}
			require.NoError(t, w.idle.beIdle(t.Context()))
			require.False(t, w.idle.active, "nor does it become idle again")
		})
	}
}

// A drainer is ready while the server of its log is heard, although it asks it nothing.
func TestIdle_is_ready_while_the_server_of_the_log_is_heard(t *testing.T) {
	t.Parallel()
	w := newIdle(t)
	heard := time.Now().Add(time.Hour)
	w.configured.Feed.Hear(heard)
	require.Equal(t, heard, w.Health().Answered)
	w.lease.members = 2
	require.NoError(t, w.idle.beIdle(t.Context()))
	require.NotEqual(t, heard, w.Health().Answered, "one that is not idle must have an answer of its database")
}

func TestIdle_polls_at_once_when_the_log_tells_of_a_change(t *testing.T) {
	t.Parallel()
	w := newIdle(t)
	w.commit(order("a"))
	w.hears()
	require.Empty(t, w.inMemory(), "nothing has told of it")
	w.configured.Feed.Add(tail.Change{Spool: w.id.Load() + 1})
	w.hears()
	require.Empty(t, w.inMemory(), "that was of another outbox")
	w.configured.Feed.Add(tail.Change{})
	w.hears()
	require.Equal(t, []string{"a"}, w.inMemory())
	require.False(t, w.idle.active)
}

// What the log has not told is found by the next look, and then the drainer polls for a while.
func TestIdle_G2_finds_what_the_log_has_not_told(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]struct {
		do    func(w *tailed)
		found func(w *tailed) bool
	}{
		"a message": {
			func(w *tailed) { w.commit(order("a")) },
			func(w *tailed) bool { return len(w.inMemory()) == 1 },
		},
		"a message below the cursors": {
			func(w *tailed) {
				w.commit(order("a"))
				for _, l := range w.lanes.held {
					l.cursor = 1 << 40
				}
				w.reader.sweeping.next, w.reader.sweeping.span = time.Time{}, largestSpan
			},
			func(w *tailed) bool { return len(w.inMemory()) == 1 },
		},
		"a message that is due": {
			func(w *tailed) {
				w.commit(spool.Draft{Topic: "orders", MessageID: "a", Delay: time.Hour})
				w.db.Exec(w.T, "UPDATE postbox_waiting SET available_at = 1")
			},
			func(w *tailed) bool { return len(w.inMemory()) == 1 },
		},
		"a pause": {
			func(w *tailed) { w.db.Exec(w.T, "UPDATE postbox_spools SET paused_at = 1, version = version + 1") },
			func(w *tailed) bool { return w.control.paused },
		},
		"a lane of another process": {
			func(w *tailed) {
				w.db.Exec(w.T, "DELETE FROM postbox_members") // its lease was over
				w.db.Exec(w.T, "INSERT INTO postbox_members (spool, holder, in_flight, expires_at) SELECT id, 'two', '{}', 9e15 FROM postbox_spools")
				w.db.Exec(w.T, "UPDATE postbox_lanes SET holder = 'two', token = token + 1 WHERE lane = 1")
			},
			func(w *tailed) bool { return w.lanes.held[1] == nil },
		},
		"another process": {
			func(w *tailed) {
				w.db.Exec(w.T, "INSERT INTO postbox_members (spool, holder, in_flight, expires_at) SELECT id, 'two', '', 9e15 FROM postbox_spools")
			},
			func(w *tailed) bool { return w.lease.members == 2 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newIdle(t)
			change.do(w)
			w.hears()
			require.False(t, change.found(w), "it is not time to look")
			w.looks()
			for deadline := time.Now().Add(time.Minute); !change.found(w); w.hears() {
				require.True(t, time.Now().Before(deadline), "it is not found")
				w.pace.renewAt = time.Time{}
			}
			require.False(t, w.idle.active)
			require.True(t, w.idle.doubt.After(time.Now()), "it polls for a while")
			require.Positive(t, w.configured.Feed.Missed(), "the reader of the log looks whether it lacks something")
		})
	}
}

// A message that waits is handed out when its time has come, whether the log has told of it or not.
func TestIdle_knows_when_the_first_message_is_due(t *testing.T) {
	t.Parallel()
	w := newIdle(t)
	w.commit(spool.Draft{Topic: "orders", MessageID: "later", Delay: time.Hour}, spool.Draft{Topic: "orders", MessageID: "soon", Delay: time.Second})
	w.looks()
	require.True(t, w.idle.active)
	require.True(t, w.pace.at.Before(w.idle.lookAt))
	for deadline := time.Now().Add(time.Minute); len(w.inMemory()) == 0; w.hears() {
		require.True(t, time.Now().Before(deadline), "it is not handed out")
		<-time.After(w.wait())
	}
	require.Equal(t, []string{"soon"}, w.inMemory())
	require.False(t, w.idle.active)
}

// A process that was suspended for longer than its lease has lost nothing that it does not notice.
func TestIdle_ends_when_the_process_has_stood_still(t *testing.T) {
	t.Parallel()
	w := newIdle(t)
	w.lease.renewedAhead -= time.Hour
	w.hears()
	require.False(t, w.idle.active)
	require.True(t, w.pace.renewAt.After(time.Now()), "the leases were renewed")
}

func TestIdle_ends_with_an_error_of_the_database(t *testing.T) {
	t.Parallel()
	w := newIdle(t)
	defer conflictOn(t, w.db, "UPDATE ON postbox_members", "TRUE")()
	w.idle.lookAt = time.Time{}
	w.configured.Feed.Hear(time.Now())
	w.step(t.Context())
	require.Equal(t, 1, w.trouble.steps)
	require.False(t, w.idle.active)
	require.False(t, w.pace.renewAt.After(w.idle.renewed.Add(w.config.Renew)), "the leases are renewed in time")
}

// An operator's action on many messages changes them page by page, and the log tells only of its
// beginning. So the drainer looks as often as others poll.
func TestIdle_looks_often_after_an_operator_has_acted(t *testing.T) {
	t.Parallel()
	w := newIdle(t)
	w.looks()
	require.True(t, w.idle.lookAt.After(time.Now().Add(w.pollMost())))
	w.configured.Feed.Add(tail.Change{Spool: w.id.Load()})
	w.becomesIdle()
	require.True(t, w.idle.lookAt.After(time.Now().Add(w.pollMost())), "no operator has acted")
	w.configured.Feed.Add(tail.Change{})
	w.hears()
	require.False(t, w.idle.active)
	w.becomesIdle()
	require.False(t, w.idle.lookAt.After(time.Now().Add(w.pollMost())))

	w.commit(spool.Draft{Topic: "orders", MessageID: "a", Delay: time.Hour})
	w.looks()
	w.db.Exec(t, "UPDATE postbox_waiting SET available_at = 1")
	for deadline := time.Now().Add(idleActed); len(w.inMemory()) == 0; w.hears() {
		require.True(t, time.Now().Before(deadline), "a message of a later page is not found")
		<-time.After(w.wait())
	}
}

// The log is ahead of what sessions see, so the poll that follows a change may not see it. The next
// look comes soon, however long PollMax is.
func TestIdle_looks_soon_again_after_a_change_that_its_poll_did_not_see(t *testing.T) {
	t.Parallel()
	w := newIdle(t)
	require.Greater(t, w.config.PollMax, w.pollMost())
	w.pace.pause = w.config.PollMax
	w.configured.Feed.Add(tail.Change{Spool: w.id.Load()})
	w.hears()
	require.False(t, w.pace.at.After(time.Now().Add(w.pollMost())))
}

// A message that a limit holds back is in memory, or is left out by reads. Either way the drainer
// is not idle.
func TestIdle_is_not_idle_while_limits_hold_messages_back(t *testing.T) {
	t.Parallel()
	w := newIdle(t)
	w.db.Exec(t, "UPDATE postbox_spools SET settings = ?, version = version + 1", `{"per_second":1}`)
	w.configured.Feed.Add(tail.Change{})
	w.polls(func() bool { return w.config.Limits.Total.PerSecond == 1 })
	w.becomesIdle()
	for _, name := range []string{"a", "b"} {
		w.tell(w.commit(spool.Draft{Topic: "orders", MessageID: name, Payload: []byte(name)}))
	}
	w.hears()
	require.Len(t, w.inMemory(), 2)
	w.pace.at, w.pace.pause = time.Time{}, w.pollMost()
	w.hears()
	require.False(t, w.idle.active)
}
