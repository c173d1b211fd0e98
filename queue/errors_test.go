package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/report"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
)

// Covers feature W6.
func TestQueue_a_permanent_error_is_dead_at_once(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.Put("a/1", "a/2")
		var journal inboxtest.Journal
		b.Start(inboxtest.Quick(nil), func(msg *message.Message) error {
			if journal.Add(msg.UUID); msg.UUID == "a/1" {
				return fmt.Errorf("check: %w", postbox.Permanent(inboxtest.ErrHandler))
			}
			return nil
		})
		b.Drained()
		require.Equal(t, []string{"a/1", "a/2"}, journal.All())
		require.Equal(t, []string{"check: " + inboxtest.ErrHandler.Error()}, b.Failures())
		require.Equal(t, 1, b.Count(t, `SELECT COUNT(*) FROM postbox_dead_letters WHERE message_id = ? AND payload = ? AND topic = 'q'
			AND origin = 0 AND attempts = 1 AND error = ?`, []byte("a/1"), []byte("payload of a/1"), b.Failures()[0]))
	})
}

// The pause stands in the database as a time of its own clock.
func TestQueue_G11_RetryAfter_waits_by_the_clock_of_the_database(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.Put("a/1")
		var journal inboxtest.Journal
		b.Start(inboxtest.Quick(nil), func(msg *message.Message) error {
			if journal.Add(msg.UUID) == 1 {
				return postbox.RetryAfter(inboxtest.ErrHandler, time.Hour)
			}
			return nil
		})
		b.Eventually(func() bool {
			return b.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE state = 2 AND attempts = 1 AND available_at - created_at BETWEEN ? AND ?",
				time.Hour.Microseconds(), (time.Hour+inboxtest.Patience).Microseconds()) == 1
		}, "the message waits for an hour")
		b.Renewed(1)
		require.Len(t, journal.All(), 1)
		b.Exec(t, "UPDATE postbox_messages SET available_at = available_at - ?", time.Hour.Microseconds()) // it goes by
		b.Drained()
		require.Len(t, journal.All(), 2)
	})
}

// Covers feature W6.
func TestQueue_MapError_decides_by_the_error_and_the_attempt(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		ids := []string{"ignored", "hopeless", "later", "usual", "panicking rule"}
		b.Put(ids...)
		var mu sync.Mutex
		attempts := map[string][]int{}
		errRule := errors.New("the rule says no")
		config := inboxtest.Quick(func(c *queue.Config) { c.Retry.Attempts = 4 })
		config.MapError = func(p queue.Failure) error {
			if p.Queue != "q" || !errors.Is(p.Err, inboxtest.ErrHandler) || string(p.Message.Payload) != "payload of "+p.Message.UUID {
				t.Errorf("a rule is given %v", p)
			}
			mu.Lock()
			defer mu.Unlock()
			attempts[p.Message.UUID] = append(attempts[p.Message.UUID], p.Attempts)
			switch p.Message.UUID {
			case "ignored":
				return nil
			case "hopeless":
				if p.Attempts == 2 {
					return postbox.Permanent(errRule)
				}
			case "later":
				return postbox.RetryAfter(p.Err, time.Hour)
			case "panicking rule":
				panic("no rule")
			}
			return p.Err
		}
		b.Start(config, func(*message.Message) error { return fmt.Errorf("handle: %w", inboxtest.ErrHandler) })
		b.Eventually(func() bool { return b.Pending() == 1 && len(b.Dead()) == 3 }, "all but one are through")
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, map[string][]int{
			"ignored": {1}, "hopeless": {1, 2}, "later": {1}, "usual": {1, 2, 3, 4}, "panicking rule": {1, 2, 3, 4},
		}, attempts)
		require.Equal(t, []string{errRule.Error()}, b.List("SELECT error FROM postbox_dead_letters WHERE message_id = ?", []byte("hopeless")))
		require.Equal(t, []string{"later"}, b.List("SELECT message_id FROM postbox_messages WHERE available_at - created_at > ?", time.Minute.Microseconds()))
	})
}

// A handler in a router fails in three ways, and the record says each time why.
// Also covers feature 0.7.
func TestQueue_failure_record_says_why_the_handler_failed(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		for _, inTx := range []bool{false, true} {
			b := newQueueBench(t, inboxtest.Another(t, database))
			b.Put("1")
			subscriber, err := queue.NewSubscriber(b.Store, inboxtest.Quick(func(c *queue.Config) { c.Transactional = inTx }), nil)
			require.NoError(t, err)
			run := 0
			b.route(subscriber, func(*message.Message) error {
				switch run++; run {
				case 1:
					return fmt.Errorf("attempt %d: %w", run, inboxtest.ErrHandler)
				case 2:
					panic("oh no")
				default:
					return postbox.RetryAfter(inboxtest.ErrHandler, time.Millisecond)
				}
			})
			b.Eventually(func() bool { return len(b.Dead()) == 1 }, "the message is dead")
			failures := b.Failures()
			require.Len(t, failures, 3)
			require.Equal(t, "attempt 1: "+inboxtest.ErrHandler.Error(), failures[0])
			require.Regexp(t, `(?s)^panic: oh no\n.*errors_test\.go:\d+`, failures[1])
			require.Equal(t, inboxtest.ErrHandler.Error()+" (retry after 1ms)", failures[2])
			require.Equal(t, []string{"1", "2", "3"}, b.List("SELECT attempt FROM postbox_failures ORDER BY id"))
			require.Equal(t, []string{failures[2]}, b.List("SELECT error FROM postbox_dead_letters"))
		}
	})
}

// route has a router's handler work off the queue.
func (b *queueBench) route(subscriber message.Subscriber, handle message.NoPublishHandlerFunc) *message.Router {
	b.T.Helper()
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	require.NoError(b.T, err)
	router.AddConsumerHandler("handler", "q", subscriber, handle).AddMiddleware(middleware.Process)
	done := make(chan error, 1)
	go func() { done <- router.Run(context.Background()) }()
	b.T.Cleanup(func() {
		_ = router.Close()
		require.NoError(b.T, <-done)
	})
	<-router.Running()
	return router
}

// A handler of a router whose error nobody tells the queue: a Nack has none.
func TestQueue_says_that_it_does_not_hear_the_error_of_a_handler(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]message.HandlerMiddleware{"without": nil, "with": middleware.Process} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newQueueBench(t, testdb.SQLite(t))
			b.Put("1", "2")
			logger := &unheardLog{}
			subscriber, err := queue.NewSubscriber(b.Store, inboxtest.Quick(nil), logger)
			require.NoError(t, err)
			router, err := message.NewRouter(message.RouterConfig{}, nil)
			require.NoError(t, err)
			handler := router.AddConsumerHandler("handler", "q", subscriber, func(msg *message.Message) error {
				if msg.UUID == "1" {
					return postbox.Permanent(inboxtest.ErrHandler)
				}
				return nil
			})
			if wrap != nil {
				handler.AddMiddleware(wrap)
			}
			done := make(chan error, 1)
			go func() { done <- router.Run(context.Background()) }()
			b.Drained()
			require.NoError(t, router.Close())
			require.NoError(t, <-done)
			if wrap != nil {
				require.Empty(t, logger.errs.Load())
				require.Equal(t, []string{"1"}, b.List("SELECT attempts FROM postbox_dead_letters"))
				return
			}
			require.EqualValues(t, 1, logger.errs.Load(), "once, though a message failed three times")
			require.Equal(t, []string{"3"}, b.List("SELECT attempts FROM postbox_dead_letters"), "the queue does not know that the error is permanent")
		})
	}
}

// unheardLog counts the lines about errors that a queue does not hear.
type unheardLog struct {
	watermill.NopLogger

	errs atomic.Int64
}

func (l *unheardLog) With(watermill.LogFields) watermill.LoggerAdapter { return l }

func (l *unheardLog) Error(msg string, err error, _ watermill.LogFields) {
	if msg == "Postbox does not receive the errors of a handler" && strings.Contains(err.Error(), "middleware.Process") {
		l.errs.Add(1)
	}
}

// Covers feature 0.7.
func TestQueue_nack_without_a_reason_is_recorded_as_a_failure(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.Put("1")
		received, err := inboxtest.SubscriberFor(t, b.Store).Subscribe(t.Context(), "q")
		require.NoError(t, err)
		for attempt := range 3 {
			msg := <-received
			require.True(t, queue.Fail(msg.Context(), inboxtest.ErrHandler))
			if attempt == 1 { // the last word counts
				require.True(t, queue.Fail(msg.Context(), nil))
			}
			msg.Nack()
		}
		b.Drained()
		require.Equal(t, []string{inboxtest.ErrHandler.Error(), report.ErrNacked.Error(), inboxtest.ErrHandler.Error()}, b.Failures())
	})
	require.False(t, queue.Fail(t.Context(), inboxtest.ErrHandler), "a message from elsewhere")
}

// What a handler does to its message does not stay.
func TestQueue_F2_the_next_attempt_gets_the_message_as_it_was_stored(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.Put("a/1")
		var seen inboxtest.Journal
		b.Start(inboxtest.Quick(func(c *queue.Config) { c.Transactional = true }), func(msg *message.Message) error {
			seen.Add(fmt.Sprint(msg.UUID, msg.Metadata, string(msg.Payload)))
			msg.UUID, msg.Payload = "other", append(msg.Payload, '!')
			msg.Metadata.Set(postbox.MetadataOrderingKey, "other")
			if len(seen.All()) < 3 {
				return inboxtest.ErrHandler
			}
			return nil
		})
		b.Drained()
		require.Len(t, slices.Compact(seen.All()), 1)
		require.Len(t, seen.All(), 3)
	})
}
