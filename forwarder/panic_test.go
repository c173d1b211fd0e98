package forwarder_test

import (
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// neverReturns are the ways in which a function of the user may end without returning.
var neverReturns = map[string]func(){
	"panics": func() { panic("oh no") },
}

// The second call is the probe of a paused topic. The topic must not wait for ever for what becomes
// of it.
func TestForwarder_G7_a_probe_without_a_result_makes_room_for_another(t *testing.T) {
	t.Parallel()
	classes := map[string]func() postbox.ErrorClass{
		"the message is at fault": func() postbox.ErrorClass { return postbox.MessageFault },
	}
	for name, leave := range neverReturns {
		classes["Classify "+name] = func() postbox.ErrorClass {
			leave()
			return postbox.Unclassified
		}
	}
	for name, class := range classes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				database.Migrate(t)
				var calls atomic.Int32
				to := &broker{fail: func(string, *message.Message) error {
					switch calls.Add(1) {
					case 1:
						return syscall.ECONNRESET
					case 2:
						return errBroker
					default:
						return nil
					}
				}}
				inTx(t, database.DB, publisherFor(t, database, nil), "topic", newMessage("1", "a"), newMessage("2", "b"), newMessage("3", "c"))
				run(t, forwarderFor(t, database, to, func(c *forwarder.Config) {
					c.BatchSize, c.Concurrency = 1, 1
					c.Classify = func(err error) postbox.ErrorClass {
						if errors.Is(err, errBroker) {
							return class()
						}
						return postbox.Unclassified
					}
				}))
				eventually(t, func() bool { return pending(t, database) == 0 }, "all get through")
				require.Len(t, to.ids(), 3)
				require.Zero(t, dead(t, database))
			})
		})
	}
}

// A Classify that does not return for one message counts against no other message of its call.
func TestForwarder_G7_a_Classify_that_does_not_return_blames_no_other_message(t *testing.T) {
	t.Parallel()
	for name, leave := range neverReturns {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				database.Migrate(t)
				to := refusing()
				inTx(t, database.DB, publisherFor(t, database, nil), "topic", newMessage("1", "a"), newMessage("poison", "b"), newMessage("3", "c"))
				run(t, forwarderFor(t, database, to, func(c *forwarder.Config) {
					c.Retry.Attempts, c.OutageLimit = 2, 100*time.Millisecond
					c.Classify = func(error) postbox.ErrorClass {
						leave()
						return postbox.Unclassified
					}
				}))
				eventually(t, func() bool { return pending(t, database) == 0 }, "all come to an end")
				require.ElementsMatch(t, []string{"1", "3"}, to.ids())
				require.Equal(t, 1, dead(t, database))
				require.Equal(t, 2, database.Count(t, "SELECT COUNT(*) FROM postbox_failures WHERE attempt > 0"))
			})
		})
	}
}
