package drain_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A topic is back before the drainer is told so. What was passed over meanwhile must not be
// overtaken by what is new: the lanes have been read beyond it.
func TestDrainer_G3_excluded_messages_go_first_when_their_topic_is_back(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		handler := &recorder{excluded: []string{"broken"}}
		first, second := draft("first", "key"), draft("second", "key")
		first.Topic, second.Topic = "broken", "broken"
		b.Append(database.DB, first)
		r := b.start(database.DB, handler, config("one"))
		for i := range 5 { // each one moves the reading on
			b.Append(database.DB, draft(fmt.Sprint(i), ""))
			r.Wake()
			b.Eventually(func() bool { return len(handler.ids()) == i+1 }, "the other topic flows")
		}
		b.Append(database.DB, second)
		handler.mu.Lock()
		handler.excluded = nil
		handler.mu.Unlock()
		r.Wake()
		b.Eventually(func() bool { return len(handler.ids()) == 7 }, "the topic is back")
		require.Equal(t, []string{"first", "second"}, handler.ids()[5:])
	})
}
