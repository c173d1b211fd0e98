package middleware_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	wmmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
)

// errorLog keeps error lines. The map of Watermill's CaptureLoggerAdapter cannot be read while somebody logs.
type errorLog struct {
	watermill.NopLogger

	mu    sync.Mutex
	lines []watermill.CapturedMessage
}

func (l *errorLog) Error(msg string, err error, fields watermill.LogFields) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, watermill.CapturedMessage{Msg: msg, Err: err, Fields: fields})
}

// swallowedLines are the log lines about messages that were acked though they failed.
func swallowedLines(l *errorLog) (lines []watermill.CapturedMessage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if line.Fields["consumer"] != nil && line.Fields["attempts"] == nil {
			lines = append(lines, line)
		}
	}
	return lines
}

// loudInbox returns an inbox, one that fails a message twice before that is a dead letter, and what it logs.
func loudInbox(t *testing.T, b *guardBench) (*middleware.Inbox, *errorLog) {
	t.Helper()
	logger := &errorLog{}
	inbox, err := middleware.NewInbox(b.store, middleware.InboxConfig{
		Consumer: "billing", Retry: postbox.RetryProfile{Attempts: 3, Base: time.Nanosecond, Cap: time.Nanosecond},
	}, logger)
	require.NoError(t, err)
	return inbox, logger
}

// A message that failed, and that a middleware outside of the inbox lets the router ack, is lost without a trace but this one.
func TestInbox_logs_that_an_outer_middleware_swallowed_its_error(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newGuardBench(t, database)
		for name, eater := range map[string][]message.HandlerMiddleware{
			"IgnoreErrors":             {errorEaters(t)["IgnoreErrors"]},
			"PoisonQueue":              {errorEaters(t)["PoisonQueue"]},
			"IgnoreErrors and Timeout": {errorEaters(t)["IgnoreErrors"], wmmiddleware.Timeout(time.Minute)},
			"PoisonQueue and Retry":    {errorEaters(t)["PoisonQueue"], wmmiddleware.Retry{MaxRetries: 1, InitialInterval: time.Millisecond}.Middleware},
		} {
			inbox, logger := loudInbox(t, b)
			broker := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
			startRouter(t, func(router *message.Router) {
				router.AddConsumerHandler(name, name, broker, func(*message.Message) error { return errHandler }).
					AddMiddleware(append(eater, inbox.Middleware)...)
			})
			require.NoError(t, broker.Publish(name, message.NewMessage("1", nil)))
			b.eventually(func() bool { return len(swallowedLines(logger)) > 0 }, name)
			require.NoError(t, broker.Publish(name, message.NewMessage("2", nil)))
			b.eventually(func() bool { return middleware.Watched(inbox) == 0 }, name)
			lines := swallowedLines(logger)
			require.Len(t, lines, 1, "one a minute")
			require.ErrorIs(t, lines[0].Err, errHandler)
			require.Contains(t, lines[0].Msg, "A middleware outside of the inbox took the error")
			require.Equal(t, "billing", lines[0].Fields["consumer"])
			require.Equal(t, name, lines[0].Fields["topic"])
			require.Equal(t, "1", lines[0].Fields["message_uuid"])
			require.Zero(t, b.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters"))
		}
	})
}

// None of these loses a message.
func TestInbox_does_not_log_a_swallowed_error_of_a_message_that_is_not_lost(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	b := newGuardBench(t, database)
	for name, c := range map[string]struct {
		chain []message.HandlerMiddleware
		fail  func(calls int32) error
	}{
		"a nack, then success": {fail: func(calls int32) error { return errUntil(calls, 2) }},
		"Retry outside, then success": {
			chain: []message.HandlerMiddleware{wmmiddleware.Retry{MaxRetries: 3, InitialInterval: time.Millisecond}.Middleware},
			fail:  func(calls int32) error { return errUntil(calls, 2) },
		},
		"Retry outside, then a dead letter": {
			chain: []message.HandlerMiddleware{wmmiddleware.Retry{MaxRetries: 3, InitialInterval: time.Millisecond}.Middleware},
			fail:  func(int32) error { return errHandler },
		},
		"an inbox outside, then its dead letter": {
			chain: []message.HandlerMiddleware{b.inbox("outer")},
			fail:  func(int32) error { return errHandler },
		},
	} {
		inbox, logger := loudInbox(t, b)
		broker := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
		var calls atomic.Int32
		router := startRouter(t, func(router *message.Router) {
			router.AddConsumerHandler(name, name, broker, func(*message.Message) error { return c.fail(calls.Add(1)) }).
				AddMiddleware(append(c.chain, inbox.Middleware)...)
		})
		require.NoError(t, broker.Publish(name, message.NewMessage("1", nil)))
		require.Equal(t, int32(3), calls.Load(), name)
		require.NoError(t, router.Close())
		require.Eventually(t, func() bool { return middleware.Watched(inbox) == 0 }, patience, time.Millisecond, name)
		require.Empty(t, swallowedLines(logger), name)
	}
}

func errUntil(calls, failures int32) error {
	if calls <= failures {
		return errHandler
	}
	return nil
}

// Where the transaction of a queue around the inbox has failed, the ack counts for nothing.
func TestInbox_does_not_log_a_swallowed_error_in_a_queue_that_tries_again(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newGuardBench(t, database)
		inbox, logger := loudInbox(t, b)
		b.put("orders", message.NewMessage("1", nil))
		var calls atomic.Int32
		startRouter(t, func(router *message.Router) {
			router.AddConsumerHandler("billing", "orders", b.subscriber(), func(msg *message.Message) error {
				if err := b.write(msg.Context(), msg.UUID); err != nil {
					return err
				}
				return errUntil(calls.Add(1), 1)
			}).AddMiddleware(errorEaters(t)["IgnoreErrors"], middleware.Process, inbox.Middleware)
		})
		b.eventually(func() bool { return b.effects("1") == 1 }, "it is tried again")
		require.Zero(t, middleware.Watched(inbox))
		require.Empty(t, swallowedLines(logger))
	})
}

// An error that is not the handler's loses the message just the same.
func TestInbox_says_that_an_error_of_its_store_was_swallowed(t *testing.T) {
	t.Parallel()
	store, err := inboxstore.New(postbox.Database{DB: testdb.SQLite(t).DB, Dialect: postbox.SQLite}, inboxstore.Config{}, nil) // without tables
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	logger := &errorLog{}
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Retry: postbox.RetryProfile{Base: time.Nanosecond, Cap: time.Nanosecond}}, logger)
	require.NoError(t, err)
	broker := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
	startRouter(t, func(router *message.Router) {
		router.AddConsumerHandler("billing", "orders", broker, func(*message.Message) error { return nil }).
			AddMiddleware(errorEaters(t)["PoisonQueue"], inbox.Middleware)
	})
	require.NoError(t, broker.Publish("orders", message.NewMessage("1", nil)))
	require.Eventually(t, func() bool { return len(swallowedLines(logger)) == 1 }, patience, time.Millisecond)
	require.ErrorIs(t, swallowedLines(logger)[0].Err, inboxstore.ErrNoTables)
}
