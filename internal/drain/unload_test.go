package drain_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A settlement that takes long keeps the messages that wait for it in memory: not so their payloads
// where they are large. Whoever is told of a death gets the payload all the same.
func TestDrainer_G8_large_payloads_leave_memory_before_their_settlement(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		large := bytes.Repeat([]byte("x"), 2*config("a").InlineBytes)
		for _, id := range []string{"done", "dies"} {
			b.Append(b.Database.DB, spool.Draft{Topic: "orders", MessageID: id, Payload: large})
		}
		var (
			mu      sync.Mutex
			handled = map[string]*spool.Message{}
			told    []byte
		)
		c := config("a")
		c.Buried = func(_ context.Context, m *spool.Message, _ int, _ error) error {
			told = bytes.Clone(m.Payload)
			return nil
		}
		drainer := b.start(b.Database.DB, &recorder{do: func(m *spool.Message) error {
			if !bytes.Equal(large, m.Payload) {
				return errTest
			}
			mu.Lock()
			defer mu.Unlock()
			handled[m.MessageID] = m
			if m.MessageID == "dies" {
				return postbox.Permanent(errTest)
			}
			return nil
		}}, c)
		b.Eventually(func() bool { return b.Pending() == 0 }, "all are settled")
		drainer.stop(t)
		require.Equal(t, 1, b.Dead())
		require.Nil(t, handled["done"].Payload, "it was kept after it was handled")
		require.Equal(t, large, told)
	})
}

// Many messages with large payloads die at once. Whoever is told of them gets one payload after the
// other.
func TestDrainer_G8_one_large_payload_at_a_time_is_in_memory_while_deaths_are_reported(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		const messages = 8
		b := newBench(t, database)
		large := bytes.Repeat([]byte("x"), 2*config("a").InlineBytes)
		for i := range messages {
			b.Append(database.DB, spool.Draft{Topic: "orders", MessageID: fmt.Sprint(i), Payload: large})
		}
		told := map[*spool.Message]bool{} // of one more than once, if its part is tried again
		most := 0
		c := config("a")
		c.Workers, c.BatchSize = 1, messages
		c.Buried = func(_ context.Context, m *spool.Message, _ int, _ error) error {
			told[m] = true
			inMemory := 0
			for m := range told {
				inMemory += len(m.Payload)
			}
			most = max(most, inMemory)
			return nil
		}
		drainer := b.start(database.DB, &recorder{do: func(*spool.Message) error { return postbox.Permanent(errTest) }}, c)
		b.Eventually(func() bool { return b.Dead() == messages }, "all are dead")
		drainer.stop(t)
		require.Equal(t, len(large), most, "bytes in memory")
	})
}
