package admin_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

// The history tells how long the attempt took that succeeded, not those before it, and not how long
// the message had waited.
func TestMessage_of_a_history_tells_how_long_it_took(t *testing.T) {
	t.Parallel()
	for name, with := range map[string]func(*queue.Config){"plain": func(*queue.Config) {}, "transactional": inboxtest.Transactional} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := inboxtest.New(t, database)
				b.Put("a/0")
				age(b, time.Hour)
				const work = 20 * time.Millisecond
				var tries atomic.Int32
				began := time.Now()
				b.Start(inboxtest.Quick(func(c *queue.Config) {
					c.History = time.Hour
					with(c)
				}), func(*message.Message) error {
					if tries.Add(1) == 1 {
						return errors.New("not yet")
					}
					<-time.After(work)
					return nil
				})
				b.Drained()
				most := time.Since(began)
				operator, err := admin.New(database.On(database.DB), admin.Config{}, nil)
				require.NoError(t, err)
				queues, err := operator.Queues(t.Context())
				require.NoError(t, err)
				target := queues[0].Target
				done, _, err := operator.Messages(t.Context(), admin.Filter{Target: target, Status: admin.Done})
				require.NoError(t, err)
				require.Len(t, done, 1)
				require.GreaterOrEqual(t, done[0].Took, work)
				require.LessOrEqual(t, done[0].Took, most)
				whole, err := operator.Message(t.Context(), admin.Filter{Target: target, ID: done[0].ID})
				require.NoError(t, err)
				require.Equal(t, done[0].Took, whole.Took)
				found, err := operator.Find(t.Context(), done[0].MessageID)
				require.NoError(t, err)
				require.Contains(t, found.Events[len(found.Events)-1].Text, ", which took "+done[0].Took.Round(10*time.Microsecond).String())
			})
		})
	}
}
