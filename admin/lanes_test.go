package admin_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestLanes_says_who_has_which_lane(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		type held struct {
			Lanes   []admin.Lane
			Members []admin.Member
		}
		holders := func() held {
			lanes, members, err := b.admin.Lanes(t.Context(), b.target)
			require.NoError(t, err)
			return held{lanes, members}
		}
		_, _, err := b.admin.Lanes(t.Context(), b.target)
		require.ErrorIs(t, err, admin.ErrNotFound)
		b.outboxID()
		require.Equal(t, held{Lanes: []admin.Lane{}, Members: []admin.Member{}}, holders(), "no process has drained it")

		h := newHandler(func(*spool.Message) error { return nil })
		stop := b.drainWith(database.DB, h, func(c *drain.Config) { c.Holder = "first" })
		b.join("second", beat(map[string]int{"orders": 3, "invoices": 4}), time.Minute.Microseconds())
		b.join("gone", "{}", -1)
		b.eventually(func() bool { return len(holders().Members) == 2 && holders().Members[0].Lanes == lanes/2 }, "the first hands over the half of its lanes")
		found := holders()
		require.Len(t, found.Lanes, lanes)
		n := 0
		for i, lane := range found.Lanes {
			require.Equal(t, i, lane.Number)
			require.Positive(t, lane.Token)
			require.Equal(t, lane.Held, lane.Holder == "first")
			require.Equal(t, lane.Held, !lane.Until.IsZero())
			require.False(t, lane.Suspect)
			if lane.Held {
				n++
				require.WithinRange(t, lane.Until, time.Now(), time.Now().Add(time.Hour))
			}
		}
		require.Equal(t, lanes/2, n)
		require.Equal(t, "first", found.Members[0].Name)
		second := found.Members[1]
		require.WithinRange(t, second.Until, time.Now(), time.Now().Add(time.Hour))
		second.Until = time.Time{}
		require.Equal(t, admin.Member{Name: "second", InFlight: 7}, second, "a member without lanes")
		stop()

		database.Exec(t, "INSERT INTO postbox_members (spool, holder, in_flight, expires_at) SELECT id, 'crashed', '{}', 7 FROM postbox_spools")
		database.Exec(t, "UPDATE postbox_lanes SET holder = 'crashed', suspect = 1 WHERE lane = 3")
		lane := holders().Lanes[3]
		require.Equal(t, admin.Lane{Number: 3, Holder: "crashed", Until: time.UnixMicro(7), Token: lane.Token, Suspect: true}, lane)
	})
}
