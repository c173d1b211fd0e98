package inboxstore_test

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
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
)

func TestQueue_W6_permanent_error_is_dead_at_once(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.put("a/1", "a/2")
		var journal journal
		b.start(quick(nil), func(msg *message.Message) error {
			if journal.add(msg.UUID); msg.UUID == "a/1" {
				return fmt.Errorf("check: %w", postbox.Permanent(errHandler))
			}
			return nil
		})
		b.drained()
		require.Equal(t, []string{"a/1", "a/2"}, journal.all())
		require.Equal(t, []string{"check: " + errHandler.Error()}, b.failures())
		require.Equal(t, 1, b.Count(t, `SELECT COUNT(*) FROM postbox_dead_letters WHERE message_id = ? AND payload = ? AND topic = 'q'
			AND origin = 0 AND attempts = 1 AND error = ?`, []byte("a/1"), []byte("payload of a/1"), b.failures()[0]))
	})
}

// codedError is an application's error that has a code of its own, and a state.
type codedError struct {
	number int
	state  string
}

func (e codedError) Error() string    { return fmt.Sprint("code ", e.number, e.state) }
func (e codedError) Code() int        { return e.number }
func (e codedError) SQLState() string { return e.state }

// codes are errors of applications. To SQLite, 5 is a busy file and 13 a full disk; to PostgreSQL, 40001 is a conflict and 57P01 a server
// that shuts down.
var codes = map[string]error{
	"5": codedError{number: 5}, "13": codedError{number: 13}, "40001": codedError{state: "40001"}, "57P01": codedError{state: "57P01"},
}

func TestQueue_G7_codes_of_an_application_are_no_codes_of_the_database(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.put("5", "13", "40001", "57P01")
		var runs journal
		b.start(quick(transactional), func(msg *message.Message) error {
			runs.add(msg.UUID)
			return errors.Join(errHandler, fmt.Errorf("call the service: %w", codes[msg.UUID]))
		})
		b.drained()
		require.Len(t, b.dead(), len(codes))
		for code := range codes {
			require.Equal(t, 3, runs.times(code), "each run of the handler is an attempt")
		}
	})
}

// The same in an inbox, in a transaction of its own and in a savepoint.
func TestStore_G7_codes_of_an_application_are_no_codes_of_the_database(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		for name, within := range b.places() {
			for code, coded := range codes {
				runs := 0
				err := within(func(ctx context.Context) error {
					_, err := b.store.Once(ctx, inboxstore.Key{Consumer: name, MessageID: code}, func(context.Context) error {
						runs++
						return fmt.Errorf("call the service: %w", coded)
					})
					return err
				})
				var failure *inboxstore.HandlerError
				require.ErrorAs(t, err, &failure, "%s, %s", name, code)
				require.ErrorIs(t, err, coded, "%s, %s", name, code)
				require.Equal(t, 1, runs, "%s, %s", name, code)
			}
		}
	})
}

// The pause stands in the database as a time of its own clock.
func TestQueue_G11_RetryAfter_is_obeyed_by_the_clock_of_the_database(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.put("a/1")
		var journal journal
		b.start(quick(nil), func(msg *message.Message) error {
			if journal.add(msg.UUID) == 1 {
				return postbox.RetryAfter(errHandler, time.Hour)
			}
			return nil
		})
		b.eventually(func() bool {
			return b.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE state = 2 AND attempts = 1 AND available_at - created_at BETWEEN ? AND ?",
				time.Hour.Microseconds(), (time.Hour+patience).Microseconds()) == 1
		}, "the message waits for an hour")
		b.renewed(1)
		require.Len(t, journal.all(), 1)
		b.Exec(t, "UPDATE postbox_messages SET available_at = available_at - ?", time.Hour.Microseconds()) // it goes by
		b.drained()
		require.Len(t, journal.all(), 2)
	})
}

func TestQueue_W6_rule_decides_by_the_error_and_the_attempt(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		ids := []string{"ignored", "hopeless", "later", "usual", "panicking rule"}
		b.put(ids...)
		var mu sync.Mutex
		attempts := map[string][]int{}
		errRule := errors.New("the rule says no")
		config := quick(func(c *inboxstore.QueueConfig) { c.Retry.Attempts = 4 })
		config.Rule = func(p inboxstore.RuleParams) error {
			if p.Queue != "q" || !errors.Is(p.Err, errHandler) || string(p.Message.Payload) != "payload of "+p.Message.UUID {
				t.Errorf("a rule is given %v", p)
			}
			mu.Lock()
			defer mu.Unlock()
			attempts[p.Message.UUID] = append(attempts[p.Message.UUID], p.Attempt)
			switch p.Message.UUID {
			case "ignored":
				return nil
			case "hopeless":
				if p.Attempt == 2 {
					return postbox.Permanent(errRule)
				}
			case "later":
				return postbox.RetryAfter(p.Err, time.Hour)
			case "panicking rule":
				panic("no rule")
			}
			return p.Err
		}
		b.start(config, func(*message.Message) error { return fmt.Errorf("handle: %w", errHandler) })
		b.eventually(func() bool { return b.pending() == 1 && len(b.dead()) == 3 }, "all but one are through")
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, map[string][]int{
			"ignored": {1}, "hopeless": {1, 2}, "later": {1}, "usual": {1, 2, 3, 4}, "panicking rule": {1, 2, 3, 4},
		}, attempts)
		require.Equal(t, []string{errRule.Error()}, b.list("SELECT error FROM postbox_dead_letters WHERE message_id = ?", []byte("hopeless")))
		require.Equal(t, []string{"later"}, b.list("SELECT message_id FROM postbox_messages WHERE available_at - created_at > ?", time.Minute.Microseconds()))
	})
}

// A handler in a router fails in three ways, and the record says each time why.
func TestQueue_S0_0_7_failure_record_says_why(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		for _, inTx := range []bool{false, true} {
			b := newQueueBench(t, another(t, database))
			b.put("1")
			subscriber, err := inboxstore.NewSubscriber(b.store, quick(func(c *inboxstore.QueueConfig) { c.Transactional = inTx }), nil)
			require.NoError(t, err)
			run := 0
			b.route(subscriber, func(*message.Message) error {
				switch run++; run {
				case 1:
					return fmt.Errorf("attempt %d: %w", run, errHandler)
				case 2:
					panic("oh no")
				default:
					return postbox.RetryAfter(errHandler, time.Millisecond)
				}
			})
			b.eventually(func() bool { return len(b.dead()) == 1 }, "the message is dead")
			failures := b.failures()
			require.Len(t, failures, 3)
			require.Equal(t, "attempt 1: "+errHandler.Error(), failures[0])
			require.Regexp(t, `(?s)^panic: oh no\n.*queue_errors_test\.go:\d+`, failures[1])
			require.Equal(t, errHandler.Error()+" (retry after 1ms)", failures[2])
			require.Equal(t, []string{"1", "2", "3"}, b.list("SELECT attempt FROM postbox_failures ORDER BY id"))
			require.Equal(t, []string{failures[2]}, b.list("SELECT error FROM postbox_dead_letters"))
		}
	})
}

// route has a router's handler work off the queue.
func (b *queueBench) route(subscriber message.Subscriber, handle message.NoPublishHandlerFunc) *message.Router {
	b.t.Helper()
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	require.NoError(b.t, err)
	router.AddConsumerHandler("handler", "q", subscriber, handle).AddMiddleware(middleware.Process)
	done := make(chan error, 1)
	go func() { done <- router.Run(context.Background()) }()
	b.t.Cleanup(func() {
		_ = router.Close()
		require.NoError(b.t, <-done)
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
			b.put("1", "2")
			logger := &unheardLog{}
			subscriber, err := inboxstore.NewSubscriber(b.store, quick(nil), logger)
			require.NoError(t, err)
			router, err := message.NewRouter(message.RouterConfig{}, nil)
			require.NoError(t, err)
			handler := router.AddConsumerHandler("handler", "q", subscriber, func(msg *message.Message) error {
				if msg.UUID == "1" {
					return postbox.Permanent(errHandler)
				}
				return nil
			})
			if wrap != nil {
				handler.AddMiddleware(wrap)
			}
			done := make(chan error, 1)
			go func() { done <- router.Run(context.Background()) }()
			b.drained()
			require.NoError(t, router.Close())
			require.NoError(t, <-done)
			if wrap != nil {
				require.Empty(t, logger.errs.Load())
				require.Equal(t, []string{"1"}, b.list("SELECT attempts FROM postbox_dead_letters"))
				return
			}
			require.EqualValues(t, 1, logger.errs.Load(), "once, though a message failed three times")
			require.Equal(t, []string{"3"}, b.list("SELECT attempts FROM postbox_dead_letters"), "the queue does not know that the error is permanent")
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
	if msg == "Postbox does not hear why a handler fails" && strings.Contains(err.Error(), "middleware.Process") {
		l.errs.Add(1)
	}
}

func TestQueue_S0_0_7_nack_without_a_reason(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.put("1")
		received, err := subscriberFor(t, b.store).Subscribe(t.Context(), "q")
		require.NoError(t, err)
		for attempt := range 3 {
			msg := <-received
			require.True(t, inboxstore.Fail(msg.Context(), errHandler))
			if attempt == 1 { // the last word counts
				require.True(t, inboxstore.Fail(msg.Context(), nil))
			}
			msg.Nack()
		}
		b.drained()
		require.Equal(t, []string{errHandler.Error(), inboxstore.ErrNacked.Error(), errHandler.Error()}, b.failures())
	})
	require.False(t, inboxstore.Fail(t.Context(), errHandler), "a message from elsewhere")
}

// What a handler does to its message does not stay.
func TestQueue_F2_next_attempt_sees_the_message_as_it_was_stored(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.put("a/1")
		var seen journal
		b.start(quick(func(c *inboxstore.QueueConfig) { c.Transactional = true }), func(msg *message.Message) error {
			seen.add(fmt.Sprint(msg.UUID, msg.Metadata, string(msg.Payload)))
			msg.UUID, msg.Payload = "other", append(msg.Payload, '!')
			msg.Metadata.Set(postbox.OrderingKey, "other")
			if len(seen.all()) < 3 {
				return errHandler
			}
			return nil
		})
		b.drained()
		require.Len(t, slices.Compact(seen.all()), 1)
		require.Len(t, seen.all(), 3)
	})
}
