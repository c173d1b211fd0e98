package pgtail_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/instruments"
)

// Forwarders come and go, with and without the log, slots are lost, the broker fails now and then,
// operators pause keys, and some messages are large. Nothing is lost, and each key is published in
// order. Also covers G2 and G9.
func TestTail_G3_holds_in_all_kinds_of_trouble(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t), &broker{}
	b.fail = func(m *message.Message) error {
		if rand.IntN(60) == 0 { //nolint:gosec // a test
			return fmt.Errorf("%w of %s", errBroker, m.UUID)
		}
		return nil
	}
	spawn := func(i int) *running {
		config := forwarder.Config{
			Retry:  postbox.RetryProfile{Base: 5 * time.Millisecond, Cap: 20 * time.Millisecond, Attempts: 1000},
			Tuning: postbox.Tuning{PageSize: []int{2000, 50}[i%2], PollMin: time.Millisecond, ProbeMin: time.Millisecond, ProbeMax: 10 * time.Millisecond, Lease: 2 * time.Second},
		}
		if i%4 != 3 {
			config.Tail = w.tail()
		}
		return w.start(b, config)
	}

	const keys, perKey = 12, 150
	working, stopped := context.WithCancel(t.Context())
	var producers, trouble sync.WaitGroup
	for k := range keys {
		producers.Go(func() { w.produce(fmt.Sprint("key", k), perKey) })
	}
	trouble.Go(func() { w.makeTrouble(working, spawn) })
	producers.Wait()
	stopped()
	trouble.Wait()

	last := spawn(0)
	w.eventually(func() bool { return w.Count(t, "SELECT COUNT(*) FROM postbox_messages") == 0 }, "all messages are published")
	require.Zero(t, w.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters"))
	for k := range keys {
		key := fmt.Sprint("key", k)
		_, want := numbered(key, perKey)
		require.Equal(t, want, first(b.ids(key)), "each key in order")
	}
	t.Logf("%v of %d messages came through the log", w.recorder.value(instruments.LogTaken), keys*perKey)
	last.stop(t)
}

// produce stores the messages of a key one after the other, some of them together, some large.
func (w *world) produce(key string, n int) {
	messages, _ := numbered(key, n)
	for len(messages) > 0 {
		size := min(1+rand.IntN(3), len(messages)) //nolint:gosec // a test
		if rand.IntN(20) == 0 {                    //nolint:gosec // a test
			messages[0].Payload = make([]byte, 20_000)
		}
		w.publish("orders", messages[:size]...)
		messages = messages[size:]
	}
}

// makeTrouble does one thing after the other until ctx ends, and then ends all forwarders.
func (w *world) makeTrouble(ctx context.Context, spawn func(i int) *running) {
	operator, err := admin.New(w.Postbox(), admin.Config{}, nil)
	require.NoError(w, err)
	forwarders := []*running{spawn(0), spawn(1)}
	<-forwarders[0].Running() // from then on operators find the outbox
	for i := 2; ctx.Err() == nil; i++ {
		switch key := fmt.Sprint("key", i%3); i % 5 {
		case 0:
			forwarders[0].stop(w.T)
			forwarders = append(forwarders[1:], spawn(i))
		case 1:
			w.cut()
		case 2:
			require.NoError(w, operator.Pause(w.Context(), admin.Filter{Target: admin.Outbox("outbox"), Key: key}))
			pause(ctx, 50*time.Millisecond)
			err := operator.Resume(w.Context(), admin.Filter{Target: admin.Outbox("outbox"), Key: key})
			require.False(w, err != nil && !errors.Is(err, admin.ErrNotFound), err)
		}
		pause(ctx, time.Second)
	}
	for _, f := range forwarders {
		f.stop(w.T)
	}
}

// pause lets time pass in which the others work.
func pause(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}

// first returns the ids without repetitions.
func first(ids []string) (once []string) {
	seen := map[string]bool{}
	for _, id := range ids {
		if !seen[id] {
			seen[id] = true
			once = append(once, id)
		}
	}
	return once
}
