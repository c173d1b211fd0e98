package drain_test

import (
	"bytes"
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A settlement that takes long keeps the messages that wait for it in memory: not so their payloads where they are
// large. Whoever is told of a death gets the payload all the same.
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
