package drain_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// blocker is a handler whose calls end when the test lets them, whatever becomes of their context.
type blocker struct {
	recorder

	entered chan string              // the ids of messages
	proceed map[string]chan struct{} // by id
	free    sync.Once
}

func newBlocker(list []spool.Draft) *blocker {
	b := &blocker{entered: make(chan string, len(list)), proceed: map[string]chan struct{}{}}
	for _, m := range list {
		b.proceed[m.MessageID] = make(chan struct{}, 1)
	}
	b.do = func(m *spool.Message) error {
		b.entered <- m.MessageID
		<-b.proceed[m.MessageID]
		return nil
	}
	return b
}

// letGo lets all calls end, those to come too.
func (b *blocker) letGo() {
	b.free.Do(func() {
		for _, proceed := range b.proceed {
			close(proceed)
		}
	})
}

// inEachLane returns so many messages of one key in each lane.
func inEachLane(messages int) (list []spool.Draft) {
	for lane := range lanes {
		for i := range messages {
			list = append(list, draft(fmt.Sprintf("%d/%d", lane, i), keyOf(lane)))
		}
	}
	return list
}

// A drainer that stops has two handlers that take long. Meanwhile another drainer handles the
// messages of all other lanes, and then those of the lane of the handler that ends first. Also
// covers F24.
func TestDrainer_G12_hands_back_idle_lanes_at_once_when_it_stops(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		const inLane = 3
		list := inEachLane(inLane)
		slow, rest := newBlocker(list), &recorder{}
		c := config("one")
		c.Workers, c.BatchSize, c.Close, c.Lease = 2, 1, time.Hour, time.Hour
		one := b.start(database.DB, slow, c)
		defer slow.letGo()
		b.Eventually(func() bool { return b.held("one") == lanes }, "the first takes all")
		b.start(database.Open(t), rest, config("two"))
		b.Eventually(func() bool { return b.held("one") == lanes/2 && b.held("two") == lanes/2 }, "two share")
		b.Append(database.DB, list...)
		first, second := <-slow.entered, <-slow.entered
		one.cancel()

		b.Eventually(func() bool { return len(rest.ids()) == (lanes-2)*inLane }, "all but those behind the two handlers are handled")
		require.Equal(t, 2, b.held("one"))
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_members WHERE holder = 'one' AND sharing = 1"), "who stops has no share")
		until := func() int {
			return database.Count(t, "SELECT MIN(expires_at) FROM postbox_members WHERE holder = 'one'")
		}
		renewed := until()
		b.Eventually(func() bool { return until() > renewed }, "its leases are renewed")
		require.Equal(t, 2, b.held("one"), "it takes no lane again")

		slow.proceed[first] <- struct{}{}
		b.Eventually(func() bool { return len(rest.ids()) == (lanes-1)*inLane-1 }, "the lane of the first follows as soon as it has ended")
		require.Equal(t, 1, b.held("one"))
		require.NotContains(t, rest.ids(), first)
		slow.proceed[second] <- struct{}{}
		one.stop(t)
		b.Eventually(func() bool { return b.Pending() == 0 }, "all messages are settled")
		require.Equal(t, []string{first, second}, slow.ids())
		require.Len(t, rest.ids(), len(list)-2, "no message was handled twice")
	})
}

// A handler ignores that its context ends. The drainer stops without it, hands back the other
// lanes, and keeps the one of the handler. Also covers F24.
func TestDrainer_G12_a_handler_that_never_returns_does_not_hold_up_the_stop(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		deaf := newBlocker([]spool.Draft{draft("deaf", "")})
		lane := b.stopsWithout(deaf)
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_lanes WHERE holder IS NOT NULL"))
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_lanes WHERE holder = 'one' AND lane = ?", lane))
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_members WHERE sharing = 1"))
		require.Equal(t, 1, b.Pending())

		deaf.letGo()
		b.Eventually(func() bool { return len(deaf.ids()) == 1 }, "it returns, too late")
		heir := &recorder{}
		b.start(database.DB, heir, config("two"))
		b.Eventually(func() bool { return b.held("two") == lanes-1 }, "the other lanes are free")
		require.Empty(t, heir.ids())
		database.Exec(t, "UPDATE postbox_members SET expires_at = 0 WHERE holder = 'one'")
		b.Eventually(func() bool { return b.Pending() == 0 }, "the message is handled again after the lease")
		require.Equal(t, []string{"deaf"}, heir.ids())
	})
}

// stopsWithout stops a drainer while its handler has a message and does not return. It returns the
// message's lane.
func (b *bench) stopsWithout(deaf *blocker) (lane int) {
	b.T.Helper()
	b.Append(b.Database.DB, draft("deaf", ""))
	c := config("one")
	c.Close, c.Lease = 50*time.Millisecond, time.Hour
	logger := watermill.NewCaptureLogger()
	drainer := drain.New(b.Database.DB, spool.New(b.Statements, b.Spool.Name()), deaf, c, logger)
	ctx, cancel := context.WithCancel(b.T.Context())
	b.T.Cleanup(deaf.letGo)
	done := make(chan error, 1)
	go func() { done <- drainer.Run(ctx) }()
	signal(b.T, deaf.entered, "it runs")
	cancel()
	select {
	case err := <-done:
		require.NoError(b.T, err)
	case <-time.After(patience):
		require.FailNow(b.T, "the drainer does not stop")
	}
	lane = b.Database.Count(b.T, "SELECT MAX(lane) FROM postbox_messages")
	var told []watermill.CapturedMessage
	for _, entry := range logger.Captured()[watermill.ErrorLogLevel] {
		if strings.Contains(entry.Msg, "some handlers have not returned") {
			told = append(told, entry)
		}
	}
	require.Len(b.T, told, 1)
	require.ErrorContains(b.T, told[0].Err, "does not return when its context ends")
	require.Equal(b.T, []int{lane}, told[0].Fields["lanes"])
	require.Equal(b.T, map[string]int{"orders": 1}, told[0].Fields["in_flight"])
	return lane
}
