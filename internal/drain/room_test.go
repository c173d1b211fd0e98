package drain_test

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// blocking is a handler that keeps large messages until it is told to let go, and counts what it
// has.
type blocking struct {
	recorder

	counting sync.Mutex
	bytes    map[string]int // of the large messages that are being handled
	most     int
	beside   bool // a message larger than the bound was not alone
	proceed  chan struct{}
	once     sync.Once
}

const roomBound = 100 << 10

func newBlocking() *blocking {
	b := &blocking{bytes: map[string]int{}, proceed: make(chan struct{})}
	b.do = func(m *spool.Message) error {
		if len(m.Payload) <= config("").InlineBytes {
			return nil
		}
		b.counting.Lock()
		b.bytes[m.MessageID] = len(m.Payload)
		total := 0
		for _, n := range b.bytes {
			total += n
		}
		if total > roomBound {
			b.beside = b.beside || len(b.bytes) > 1
		} else {
			b.most = max(b.most, total)
		}
		b.counting.Unlock()
		<-b.proceed
		b.counting.Lock()
		defer b.counting.Unlock()
		delete(b.bytes, m.MessageID)
		return nil
	}
	return b
}

// release lets go of all, also of those to come.
func (b *blocking) release() { b.once.Do(func() { close(b.proceed) }) }

// inFlight returns how many large messages are being handled.
func (b *blocking) inFlight() int {
	b.counting.Lock()
	defer b.counting.Unlock()
	return len(b.bytes)
}

// Payloads that workers load one by one are bounded in bytes beside the number of workers. Small
// messages pass by those that wait for room, and a message larger than the bound is handled alone.
func TestDrainer_G8_bounds_the_bytes_in_flight(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		large := func(i, size int) spool.Draft {
			return spool.Draft{Topic: []string{"orders", "bills"}[i%2], MessageID: fmt.Sprint("large ", i), Payload: bytes.Repeat([]byte("x"), size)}
		}
		for i := range 12 {
			b.Append(database.DB, large(i, roomBound*2/5))
		}
		b.Append(database.DB, large(12, roomBound*3/2), large(13, roomBound*2/5))
		handler := newBlocking()
		c := config("one")
		c.Workers, c.MaxBytes, c.BatchSize = 8, roomBound, 1
		b.start(database.DB, handler, c)
		t.Cleanup(handler.release)
		b.Eventually(func() bool { return handler.inFlight() == 2 }, "two fit")
		b.Append(database.DB, drafts(20, func(int) string { return "" })...)
		b.Eventually(func() bool { return len(handler.ids()) == 20 }, "small ones pass by")
		require.Equal(t, 2, handler.inFlight(), "there is no room for a third, though workers are free")
		handler.release()
		b.Eventually(func() bool { return b.Pending() == 0 }, "all are settled")
		require.Len(t, handler.ids(), 34, "once each")
		require.Equal(t, 2*(roomBound*2/5), handler.most)
		require.False(t, handler.beside, "a message larger than the bound was handled beside others")
	})
}

// Messages that wait for room hold up no close.
func TestDrainer_G12_stops_while_large_messages_wait_for_room(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		for i := range 5 {
			b.Append(database.DB, spool.Draft{Topic: "orders", MessageID: fmt.Sprint(i), Payload: bytes.Repeat([]byte("x"), roomBound*2/3)})
		}
		handler := newBlocking()
		c := config("one")
		c.Workers, c.MaxBytes = 8, roomBound
		r := b.start(database.DB, handler, c)
		t.Cleanup(handler.release)
		b.Eventually(func() bool { return handler.inFlight() == 1 }, "one fits")
		r.cancel()
		handler.release()
		r.stop(t)
		require.Equal(t, 5-len(handler.ids()), b.Pending(), "the others are still there")
	})
}
