package queue_test

import (
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

// unwilling is an outbox that takes no dead letter, in a way of its own, until it is told to.
type unwilling struct {
	message.Publisher
	willing atomic.Bool
	refuse  func(topic string, messages ...*message.Message) error
}

func (u *unwilling) PublishesInTx() bool { return true }

func (u *unwilling) Publish(topic string, messages ...*message.Message) error {
	if !u.willing.Load() {
		return u.refuse(topic, messages...)
	}
	return u.Publisher.Publish(topic, messages...)
}

// Also covers G7.
func TestQueue_G3_a_dead_letter_that_PoisonOutbox_refuses_holds_up_only_its_key(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		for name, refuse := range map[string]func(topic string, messages ...*message.Message) error{
			"a broker is away": func(string, ...*message.Message) error { return syscall.ECONNREFUSED },
			"panic":            func(string, ...*message.Message) error { panic("the outbox") },
			"the end of the transaction": func(_ string, messages ...*message.Message) error {
				tx, _ := postbox.TxFromContext(messages[0].Context())
				return tx.Rollback()
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := newQueueBench(t, inboxtest.Another(t, database))
				outbox := &unwilling{Publisher: b.outbox(), refuse: refuse}
				logger := watermill.NewCaptureLogger()
				b.Logger = logger
				b.Put("a/1", "a/2", "b/1", "c/1", "d", "e")
				config := inboxtest.Quick(func(c *queue.Config) {
					c.Transactional, c.Poison.Outbox, c.Poison.Topic = true, outbox, "poison"
				})
				b.Start(config, func(msg *message.Message) error {
					if msg.UUID == "a/1" {
						return inboxtest.ErrHandler
					}
					return b.Effect(msg.Context(), msg)
				})
				b.Eventually(func() bool { return b.Pending() == 2 }, "the others are done")
				b.Eventually(func() bool { return len(setbacksOf(b)) > 0 }, "it is noted")
				require.Contains(t, setbacksOf(b)[0], "6 times in a row")
				b.Put("f")
				b.Eventually(func() bool { return b.Pending() == 2 }, "others are done all the while")
				require.ElementsMatch(t, []string{"b/1", "c/1", "d", "e", "f"}, b.Effects())
				require.Empty(t, b.Dead(), "not without the message")

				outbox.willing.Store(true)
				b.Drained()
				require.Equal(t, []string{"a/1"}, b.Dead())
				require.Len(t, b.Attempts(), 3)
				require.Equal(t, "a/1", b.published().UUID)
				requireOneSetback(t, logger, "a/1")
			})
		}
	})
}

// The outbox waits until it is told that its time is over, which is longer than the log and the
// leases can wait. Also covers G7.
func TestQueue_G3_a_PoisonOutbox_that_hangs_holds_up_only_the_key_of_its_message(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		outbox := &unwilling{Publisher: b.outbox()}
		outbox.refuse = func(topic string, messages ...*message.Message) error {
			if messages[0].UUID != "a/1" {
				return outbox.Publisher.Publish(topic, messages...)
			}
			<-messages[0].Context().Done()
			return messages[0].Context().Err()
		}
		b.Put("a/1", "a/2", "b/1", "c/1", "d")
		config := inboxtest.Quick(func(c *queue.Config) {
			c.Transactional, c.Poison.Outbox, c.Poison.Topic, c.Lease = true, outbox, "poison", 1500*time.Millisecond
		})
		b.Start(config, func(msg *message.Message) error {
			if msg.UUID == "d" {
				return b.Effect(msg.Context(), msg)
			}
			return postbox.Permanent(inboxtest.ErrHandler)
		})
		b.Eventually(func() bool { return len(b.Dead()) == 2 }, "the others are dead")
		require.ElementsMatch(t, []string{"b/1", "c/1"}, b.Dead())
		require.Equal(t, 2, b.Pending())
		outbox.willing.Store(true)
		b.Drained()
		require.ElementsMatch(t, []string{"a/1", "a/2", "b/1", "c/1"}, b.Dead())
	})
}

// setbacksOf returns what is noted of messages that cannot be settled.
func setbacksOf(b *queueBench) []string {
	b.T.Helper()
	return b.List("SELECT error FROM postbox_failures WHERE attempt = 0 AND error LIKE 'the message could not be settled%'")
}

// requireOneSetback says that the log names the message that could not be settled, and speaks of no
// other trouble.
func requireOneSetback(t *testing.T, logger *watermill.CaptureLoggerAdapter, id string) {
	t.Helper()
	var named []any
	for _, line := range logger.Captured()[watermill.ErrorLogLevel] {
		switch line.Msg {
		case "Postbox cannot settle a message and goes on trying, with no attempt counted":
			named = append(named, line.Fields["message_uuid"])
		case "Postbox moved a message to the dead letters":
		default:
			require.Fail(t, "the log says something else", line.Msg)
		}
	}
	require.Equal(t, []any{id}, named)
}
