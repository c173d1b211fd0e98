package forwarder_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Also covers G2.
func TestForwarder_G3_several_in_one_process_share_the_work_in_order(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		to := &broker{}
		for range 3 {
			run(t, forwarderFor(t, database, to, func(c *forwarder.Config) { c.BatchSize = 4 }))
		}
		publisher := publisherFor(t, database, nil)
		for i := range 300 {
			inTx(t, database.DB, publisher, "topic", newMessage(fmt.Sprintf("%05d", i), fmt.Sprint(i%7)))
		}
		eventually(t, func() bool { return pending(t, database) == 0 }, "all are published")
		perKey := map[string][]string{}
		for _, p := range to.all() {
			key := p.message.Metadata.Get(postbox.MetadataOrderingKey)
			perKey[key] = append(perKey[key], p.message.UUID)
		}
		require.Len(t, to.ids(), 300)
		for key, ids := range perKey {
			require.True(t, slices.IsSorted(ids), "key %s: %v", key, ids)
		}
	})
}

// Also covers F13.
func TestForwarder_G7_outage_counts_no_attempt(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		var down atomic.Bool
		down.Store(true)
		var tried atomic.Int32
		to := &broker{fail: func(string, *message.Message) error {
			if down.Load() {
				tried.Add(1)
				return fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
			}
			return nil
		}}
		publisher := publisherFor(t, database, nil)
		for i := range 100 {
			inTx(t, database.DB, publisher, "topic", newMessage(fmt.Sprintf("%03d", i), fmt.Sprint(i%3)))
		}
		run(t, forwarderFor(t, database, to, func(c *forwarder.Config) { c.Retry.Attempts = 2 }))
		eventually(t, func() bool { return tried.Load() > 30 }, "it goes on trying")
		require.Equal(t, 100, pending(t, database))
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE attempts > 0"))
		down.Store(false)
		eventually(t, func() bool { return pending(t, database) == 0 }, "it recovers by itself")
		require.Zero(t, dead(t, database))
		require.Len(t, to.ids(), 100)
	})
}

func TestForwarder_G7_outage_of_one_topic_leaves_the_others_alone(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	var down atomic.Bool
	down.Store(true)
	to := &broker{fail: func(topic string, _ *message.Message) error {
		if topic == "broken" && down.Load() {
			return syscall.ECONNRESET
		}
		return nil
	}}
	publisher := publisherFor(t, database, nil)
	for i := range 1500 { // more than fit into memory
		inTx(t, database.DB, publisher, "broken", newMessage(fmt.Sprintf("broken %d", i), ""))
	}
	inTx(t, database.DB, publisher, "healthy", newMessage("healthy", ""))
	run(t, forwarderFor(t, database, to, nil))
	eventually(t, func() bool { return slices.Contains(to.ids(), "healthy") }, "the healthy topic flows")
	down.Store(false)
	eventually(t, func() bool { return pending(t, database) == 0 }, "the broken one recovers")
}

func TestForwarder_unknown_errors(t *testing.T) {
	t.Parallel()
	t.Run("a lone message ends after the limit", func(t *testing.T) {
		t.Parallel()
		database := testdb.SQLite(t).Migrate(t)
		to := &broker{fail: func(string, *message.Message) error { return errBroker }}
		inTx(t, database.DB, publisherFor(t, database, nil), "topic", newMessage("1", ""))
		run(t, forwarderFor(t, database, to, func(c *forwarder.Config) {
			c.Retry.Attempts, c.OutageLimit = 4, 100*time.Millisecond
		}))
		eventually(t, func() bool { return dead(t, database) == 1 }, "it is a dead letter")
		require.Equal(t, 4, database.Count(t, "SELECT attempts FROM postbox_dead_letters"))
		require.Equal(t, 4, database.Count(t, "SELECT COUNT(*) FROM postbox_failures WHERE attempt > 0"))
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_failures WHERE attempt = 0"), "why it waited before that")
	})
	t.Run("several different ones in a row are an outage", func(t *testing.T) {
		t.Parallel()
		database := testdb.SQLite(t).Migrate(t)
		var down atomic.Bool
		down.Store(true)
		var calls atomic.Int32
		to := &broker{fail: func(string, *message.Message) error {
			if down.Load() {
				calls.Add(1)
				return errBroker
			}
			return nil
		}}
		publisher := publisherFor(t, database, nil)
		for i := range 50 {
			inTx(t, database.DB, publisher, "topic", newMessage(fmt.Sprint(i), ""))
		}
		run(t, forwarderFor(t, database, to, func(c *forwarder.Config) { c.Retry.Attempts = 5 }))
		eventually(t, func() bool { return calls.Load() > 100 }, "it probes")
		require.Zero(t, dead(t, database))
		down.Store(false)
		eventually(t, func() bool { return pending(t, database) == 0 }, "it recovers")
		require.Zero(t, dead(t, database))
	})
	t.Run("a poisonous one among healthy ones ends", func(t *testing.T) {
		t.Parallel()
		database := testdb.SQLite(t).Migrate(t)
		to := &broker{fail: func(_ string, msg *message.Message) error {
			if msg.UUID == "poison" {
				return errBroker
			}
			return nil
		}}
		publisher := publisherFor(t, database, nil)
		inTx(t, database.DB, publisher, "topic", newMessage("poison", "key"), newMessage("behind", "key"), newMessage("beside", "other"))
		run(t, forwarderFor(t, database, to, func(c *forwarder.Config) { c.Retry.Attempts = 3; c.BatchSize = 10 }))
		traffic(t, database)
		eventually(t, func() bool { return slices.Contains(to.ids(), "behind") }, "its key goes on")
		require.Equal(t, 1, dead(t, database))
		require.Contains(t, to.ids(), "beside")
	})
}

func TestForwarder_permanent_error_is_dead_at_once(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	var calls atomic.Int32
	to := &broker{fail: func(string, *message.Message) error {
		calls.Add(1)
		return postbox.Permanent(errors.New("too large"))
	}}
	inTx(t, database.DB, publisherFor(t, database, nil), "topic", newMessage("1", ""))
	run(t, forwarderFor(t, database, to, nil))
	eventually(t, func() bool { return dead(t, database) == 1 }, "it is a dead letter")
	require.EqualValues(t, 1, calls.Load())
}

// A batch fails in part: what went out goes out again, what did not goes out later, and each key
// stays in order.
func TestForwarder_F16_batch_fails_in_part(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		var n atomic.Int32
		to := &broker{fail: func(string, *message.Message) error {
			if n.Add(1)%7 == 0 {
				return errBroker
			}
			return nil
		}}
		publisher := publisherFor(t, database, nil)
		for i := range 200 {
			inTx(t, database.DB, publisher, "topic", newMessage(fmt.Sprintf("%05d", i), fmt.Sprint(i%4)))
		}
		run(t, forwarderFor(t, database, to, func(c *forwarder.Config) {
			c.BatchSize, c.Retry.Attempts, c.FailuresInRow = 20, 1000, 1000
		}))
		eventually(t, func() bool { return pending(t, database) == 0 }, "all are published")
		require.Len(t, to.ids(), 200)
		firsts := map[string][]string{}
		for _, id := range to.ids() { // in the order of their first publication
			var i int
			_, err := fmt.Sscanf(id, "%d", &i)
			require.NoError(t, err)
			firsts[fmt.Sprint(i%4)] = append(firsts[fmt.Sprint(i%4)], id)
		}
		for key, ids := range firsts {
			require.True(t, slices.IsSorted(ids), "key %s: %v", key, ids)
		}
	})
}

// A decorator of the publisher changes messages, and the call fails. They are published one by one,
// as they were stored.
func TestForwarder_F16_changes_of_a_failed_call_are_not_published(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		to := &broker{}
		var calls atomic.Int32
		encrypting := decorated(func(topic string, messages ...*message.Message) error {
			for _, msg := range messages {
				require.Empty(t, msg.Metadata.Get("encrypted"), "%s was changed before", msg.UUID)
				require.Equal(t, "payload", string(msg.Payload), msg.UUID)
				copy(msg.Payload, "secret!")
				msg.Metadata.Set("encrypted", "yes")
			}
			if calls.Add(1) == 1 {
				return errBroker
			}
			return to.Publish(topic, messages...)
		})
		var stored []*message.Message
		for _, id := range []string{"1", "2", "3"} {
			stored = append(stored, message.NewMessage(id, []byte("payload")))
		}
		inTx(t, database.DB, publisherFor(t, database, nil), "topic", stored...)
		run(t, forwarderFor(t, database, encrypting, func(c *forwarder.Config) { c.BatchSize = 10 }))
		eventually(t, func() bool { return pending(t, database) == 0 }, "all are published")
		require.ElementsMatch(t, []string{"1", "2", "3"}, to.ids())
	})
}

// decorated is a publisher that is a function.
type decorated func(topic string, messages ...*message.Message) error

// Publish calls it.
func (d decorated) Publish(topic string, messages ...*message.Message) error {
	return d(topic, messages...)
}

// Close does nothing.
func (d decorated) Close() error { return nil }

// A publisher that panics has failed to publish one message, and the others of the batch go out.
func TestForwarder_panic_of_the_publisher_is_an_error(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	to := &broker{fail: func(_ string, msg *message.Message) error {
		if msg.UUID == "bad" {
			panic("marshaler")
		}
		return nil
	}}
	inTx(t, database.DB, publisherFor(t, database, nil), "topic", newMessage("bad", ""), newMessage("good", ""))
	run(t, forwarderFor(t, database, to, func(c *forwarder.Config) {
		c.Retry.Attempts, c.BatchSize, c.OutageLimit = 2, 2, 100*time.Millisecond
	}))
	eventually(t, func() bool { return pending(t, database) == 0 }, "all are settled")
	require.Equal(t, []string{"good"}, to.ids())
	require.Equal(t, 1, dead(t, database))
}

// The broker is slow, and meanwhile no lock of ours is held: a producer writes, and the rows can be
// changed.
func TestForwarder_F20_no_lock_while_the_broker_is_slow(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		entered, proceed := make(chan struct{}), make(chan struct{})
		to := &broker{fail: func(_ string, msg *message.Message) error {
			if msg.UUID == "slow" {
				close(entered)
				<-proceed
			}
			return nil
		}}
		publisher := publisherFor(t, database, nil)
		inTx(t, database.DB, publisher, "topic", newMessage("slow", "key"))
		run(t, forwarderFor(t, database, to, nil))
		<-entered
		database.Exec(t, "UPDATE postbox_messages SET created_at = created_at")
		inTx(t, database.DB, publisher, "topic", newMessage("other", "other"))
		eventually(t, func() bool { return slices.Contains(to.ids(), "other") }, "others go on")
		close(proceed)
		eventually(t, func() bool { return pending(t, database) == 0 }, "all are published")
	})
}

func TestForwarder_F8_errors_are_told_apart_on_a_server_of_another_language(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	database.DSN += "&lc_messages=de_DE.UTF-8"
	fwd := forwarderFor(t, database, &broker{}, nil)
	require.ErrorContains(t, fwd.Run(t.Context()), "postbox.Migrate", "recognised by its code")
}

func TestForwarder_in_a_router(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	require.NoError(t, err)
	to := &broker{}
	with := func(name string) func(*forwarder.Config) {
		return func(c *forwarder.Config) { c.Router, c.Name = router, name }
	}
	fwd := forwarderFor(t, database, to, with(""))
	forwarderFor(t, database, to, with("second"))
	_, err = forwarder.New(database.Postbox(), to, forwarder.Config{Router: router}, nil)
	require.ErrorContains(t, err, "set Config.Name")
	require.ErrorContains(t, fwd.Run(t.Context()), "router")

	done := make(chan error, 1)
	go func() { done <- router.Run(context.Background()) }()
	<-router.Running()
	inTx(t, database.DB, publisherFor(t, database, nil), "topic", newMessage("1", ""))
	eventually(t, func() bool { return len(to.ids()) == 1 }, "the router runs it")
	require.NoError(t, router.Close())
	require.NoError(t, <-done)
	require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_lanes WHERE holder IS NOT NULL"), "it stopped cleanly")
	require.False(t, to.closed, "the publisher belongs to who made it")
}

// Closed in the middle of a load, again and again, by a router that cancels contexts: nothing is
// lost. Also covers F1.
func TestForwarder_F24_close_under_load_loses_nothing(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		to := &broker{}
		publisher := publisherFor(t, database, nil)
		const messages = 400
		for i := range messages {
			inTx(t, database.DB, publisher, "topic", newMessage(fmt.Sprintf("%05d", i), fmt.Sprint(i%5)))
		}
		for round := 0; len(to.ids()) < messages; round++ {
			require.Less(t, round, 1000)
			router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
			require.NoError(t, err)
			forwarderFor(t, database, to, func(c *forwarder.Config) { c.Router, c.BatchSize = router, 10 })
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- router.Run(ctx) }()
			before := len(to.ids())
			eventually(t, func() bool { return len(to.ids()) > before }, "it makes progress")
			cancel()
			require.NoError(t, <-done)
			require.Equal(t, messages, pending(t, database)+len(to.ids()), "published or still there")
		}
		require.Len(t, to.all(), messages, "a clean stop publishes nothing twice")
	})
}

func TestForwarder_bad_input_says_what_to_do(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	_, err := forwarder.New(postbox.Database{DB: database.DB, Dialect: postbox.SQLite}, &broker{}, forwarder.Config{
		Concurrency: -1, Tuning: postbox.Tuning{Lease: time.Millisecond, PollMin: time.Minute, PollMax: time.Second, ListenDSN: "postgres://"},
	}, nil)
	for _, want := range []string{"Concurrency: -1 is not positive", "Lease: 1ms", "PollMin and PollMax: 1m0s is more than 1s", "ListenDSN"} {
		require.ErrorContains(t, err, want)
	}
	for want, config := range map[string]forwarder.Config{
		"BatchSize: -1 is not positive":           {BatchSize: -1},
		"PageSize: -1 is not positive":            {Tuning: postbox.Tuning{PageSize: -1}},
		"MaxBytesInFlight: -1 is not positive":    {Tuning: postbox.Tuning{MaxBytesInFlight: -1}},
		"FailuresInRow: -1 is not positive":       {Tuning: postbox.Tuning{FailuresInRow: -1}},
		"OutageLimit: -1ns is not positive":       {Tuning: postbox.Tuning{OutageLimit: -1}},
		"CloseTimeout: -1ns is not positive":      {Tuning: postbox.Tuning{CloseTimeout: -1}},
		"ProbeMin: -1ns is not positive":          {Tuning: postbox.Tuning{ProbeMin: -1}},
		"Concurrency: 1000000 is more than 10000": {Concurrency: 1_000_000},
		"Retry: Attempts: -2":                     {Retry: postbox.RetryProfile{Attempts: -2}},
	} {
		_, err := forwarder.New(postbox.Database{DB: database.DB, Dialect: postbox.SQLite}, &broker{}, config, nil)
		require.ErrorContains(t, err, want)
	}
	_, err = forwarder.New(postbox.Database{DB: nil}, nil, forwarder.Config{}, nil)
	require.Error(t, err)

	fwd := forwarderFor(t, database, &broker{}, nil)
	require.NoError(t, fwd.Close())
	require.NoError(t, fwd.Close())
	require.ErrorIs(t, fwd.Run(t.Context()), postbox.ErrClosed)
}
