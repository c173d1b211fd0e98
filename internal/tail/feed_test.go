package tail_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/tail"
)

func newFeed() *tail.Feed {
	f := tail.NewFeed()
	f.Open(1)
	return f
}

func snapshot(t *testing.T, text string) *tail.Snapshot {
	t.Helper()
	s, err := tail.ParseSnapshot(text)
	require.NoError(t, err)
	return &s
}

func TestFeed_has_news_of_its_outbox(t *testing.T) {
	t.Parallel()
	f := newFeed()
	f.Add(tail.Change{Transaction: 7, Spool: 2, Message: true})
	require.Empty(t, f.Changed(), "it was of another outbox")
	f.Add(tail.Change{Transaction: 7, Spool: 1, Message: true, Lane: 3})
	f.Add(tail.Change{Transaction: 7, Spool: 1, Message: true, Lane: 3})
	f.Add(tail.Change{Transaction: 8, Spool: 1})
	require.Len(t, f.Changed(), 1)
	news, messages := f.News()
	require.Equal(t, []int{3, tail.AnyLane}, news)
	require.Equal(t, 2, messages)
	news, messages = f.News()
	require.Empty(t, news)
	require.Zero(t, messages)
}

func TestFeed_keeps_a_transaction_until_a_read_has_seen_it(t *testing.T) {
	t.Parallel()
	f := newFeed()
	for _, transaction := range []uint32{7, 8, 9} {
		f.Add(tail.Change{Transaction: transaction, Spool: 1})
	}
	first, left := f.Read(snapshot(t, "8:9:8"), nil, true)
	require.Equal(t, []int{1, 2}, []int{first, left}, "8 runs, and 9 has not begun")
	require.True(t, f.Pending())
	first, left = f.Read(snapshot(t, "10:10:"), nil, true)
	require.Equal(t, []int{2, 0}, []int{first, left})
	require.False(t, f.Pending())

	_, _ = f.News()
	f.Add(tail.Change{Transaction: 9, Spool: 1})
	news, _ := f.News()
	require.Empty(t, news, "it was read before the log told it")
}

// A read of some lanes says nothing of others. A lane that this process does not have is seen with
// all that it has.
func TestFeed_keeps_a_transaction_until_a_read_of_its_lane(t *testing.T) {
	t.Parallel()
	f := newFeed()
	add := func(transaction uint32, lane int) {
		f.Add(tail.Change{Transaction: transaction, Spool: 1, Message: true, Lane: lane})
	}
	add(7, 3)
	add(7, 4)
	add(8, 3)
	first, left := f.Read(snapshot(t, "8:8:"), []int{3}, false)
	require.Equal(t, []int{1, 1}, []int{first, left}, "8 is not visible, and lane 4 was not read")
	first, left = f.Read(snapshot(t, "9:9:"), []int{3}, false)
	require.Equal(t, []int{1, 0}, []int{first, left})
	require.True(t, f.Pending())
	first, left = f.Read(snapshot(t, "9:9:"), []int{3}, true)
	require.Equal(t, []int{1, 0}, []int{first, left}, "another process has lane 4")
	require.False(t, f.Pending())

	_, _ = f.News()
	add(8, 3)
	add(8, 4)
	news, _ := f.News()
	require.Empty(t, news, "they were read before the log told them")
}

// The other log may be of another server, whose transactions begin at lower ids.
func TestFeed_of_another_log_has_news_of_transactions_that_the_one_before_had(t *testing.T) {
	t.Parallel()
	f := newFeed()
	f.Read(snapshot(t, "100:100:"), nil, true)
	f.Begin()
	f.Add(tail.Change{Transaction: 50, Spool: 1})
	news, _ := f.News()
	require.NotEmpty(t, news)
	require.True(t, f.Pending())
}

// What has no transaction, such as an altered publication, is a reason to read once.
func TestFeed_has_news_without_a_transaction(t *testing.T) {
	t.Parallel()
	f := newFeed()
	f.Read(snapshot(t, "4294967290:4294967290:"), nil, true)
	f.Add(tail.Change{})
	require.True(t, f.Pending())
	require.False(t, f.Acted().IsZero(), "an operator may have acted")
	first, left := f.Read(snapshot(t, "4294967290:4294967290:"), nil, true)
	require.Equal(t, []int{1, 0}, []int{first, left})
}

func TestFeed_drops_the_oldest_of_very_many(t *testing.T) {
	t.Parallel()
	f := newFeed()
	for transaction := range uint32(20_000) {
		f.Add(tail.Change{Transaction: 1 + transaction, Spool: 1})
	}
	_, left := f.Read(snapshot(t, "20000:20000:"), nil, true)
	require.Equal(t, 1, left, "the newest is kept")
	first, _ := f.Read(snapshot(t, "20001:20001:"), nil, true)
	require.Equal(t, 1, first)
}

func TestFeed_of_another_log_or_outbox_has_nothing_of_the_one_before(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(f *tail.Feed){
		"log":    func(f *tail.Feed) { f.Begin() },
		"outbox": func(f *tail.Feed) { f.Open(2) },
	} {
		f := newFeed()
		f.Add(tail.Change{Transaction: 7, Spool: 1})
		change(f)
		require.False(t, f.Pending(), name)
	}
}

func TestFeed_tells_while_its_server_is_heard(t *testing.T) {
	t.Parallel()
	f, now := newFeed(), time.Now()
	require.False(t, f.Tells(now))
	f.Hear(now)
	f.Tell(true)
	require.Len(t, f.Changed(), 1)
	require.True(t, f.Tells(now.Add(time.Second)))
	require.False(t, f.Tells(now.Add(time.Minute)), "the server is silent")
	f.Hear(now.Add(time.Minute))
	require.True(t, f.Tells(now.Add(time.Minute)))
	f.Begin()
	require.False(t, f.Tells(now.Add(time.Minute)))
}
