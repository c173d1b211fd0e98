package admin_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/keyhash"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

// Two keys with the same hash, as anybody can make them who chooses one.
const (
	customer = "customer-4711"
	mallory  = "mallory0--kDFEAPaVs_yzE"
)

// sameHash is a queue whose handler fails for the messages of mallory, until it is mended.
type sameHash struct {
	*inboxtest.Bench
	operator *admin.Admin
	journal  *inboxtest.Journal
	mended   atomic.Bool
}

func newSameHash(t *testing.T, database *testdb.Database, change func(c *queue.Config)) *sameHash {
	t.Helper()
	require.Equal(t, keyhash.Of(customer), keyhash.Of(mallory))
	b := &sameHash{Bench: inboxtest.New(t, database), journal: &inboxtest.Journal{}}
	var err error
	b.operator, err = admin.New(database.Postbox(), admin.Config{}, nil)
	require.NoError(t, err)
	b.Start(inboxtest.Quick(change), func(msg *message.Message) error {
		if strings.HasPrefix(msg.UUID, mallory) && !b.mended.Load() {
			return inboxtest.ErrHandler
		}
		b.journal.Add(msg.UUID)
		return nil
	})
	return b
}

// handled waits until these messages are handled, and no others.
func (b *sameHash) handled(ids ...string) {
	b.T.Helper()
	b.Eventually(func() bool { return len(b.journal.All()) == len(ids) }, "as many are handled")
	got := b.journal.All()
	slices.Sort(got)
	require.Equal(b.T, ids, got)
}

func (b *sameHash) stuck(n int) []admin.StuckKey {
	b.T.Helper()
	var keys []admin.StuckKey
	b.Eventually(func() bool {
		var err error
		keys, err = b.operator.StuckKeys(b.T.Context(), admin.Filter{Target: admin.Queue("q")})
		require.NoError(b.T, err)
		return len(keys) == n
	}, "keys are stuck")
	return keys
}

func TestQueue_G3_a_parked_message_holds_back_no_key_with_the_same_hash(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newSameHash(t, database, func(c *queue.Config) { c.Park, c.Retry.Attempts = true, 1 })
		b.Put(mallory + "/1")
		b.Eventually(func() bool { keys := b.stuck(1); return keys[0].Head.Status == admin.Parked }, "it is parked")
		b.Put(customer+"/1", mallory+"/2", customer+"/2")
		b.handled(customer+"/1", customer+"/2")
		keys := b.stuck(1)
		require.Equal(t, []any{mallory, mallory + "/1", 1}, []any{keys[0].Key, keys[0].Head.MessageID, keys[0].Behind})

		b.mended.Store(true)
		require.NoError(t, b.operator.Resume(t.Context(), admin.Filter{Target: admin.Queue("q"), Key: customer}))
		require.Equal(t, admin.Parked, b.stuck(1)[0].Head.Status, "another key was resumed")
		require.NoError(t, b.operator.Resume(t.Context(), admin.Filter{Target: admin.Queue("q"), Key: mallory}))
		b.handled(customer+"/1", customer+"/2", mallory+"/1", mallory+"/2")
		require.Equal(t, []string{mallory + "/1", mallory + "/2"}, inboxtest.OfKey(b.journal.All(), mallory))
	})
}

func TestQueue_G3_a_failing_message_holds_back_no_key_with_the_same_hash(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newSameHash(t, database, func(c *queue.Config) {
			c.Retry = postbox.RetryProfile{Attempts: 3, Base: time.Hour, Cap: time.Hour}
		})
		b.Put(mallory + "/1")
		b.Eventually(func() bool { return len(b.Failures()) == 1 }, "it has failed")
		b.Put(customer+"/1", mallory+"/2", customer+"/2")
		b.handled(customer+"/1", customer+"/2")
		require.Equal(t, mallory, b.stuck(1)[0].Key)
		b.Eventually(func() bool { return b.Pending() == 2 }, "those of mallory wait")
	})
}

func TestQueue_a_pause_is_of_one_key_and_of_none_with_the_same_hash(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newSameHash(t, database, nil)
		b.mended.Store(true)
		paused := func(want ...string) {
			t.Helper()
			keys, err := b.operator.Paused(t.Context(), admin.Queue("q"))
			require.NoError(t, err)
			var got []string
			for _, key := range keys {
				got = append(got, key.Key)
			}
			require.Equal(t, want, got)
		}
		b.Put(customer + "/0")
		b.handled(customer + "/0")
		for range 2 { // the second one changes nothing
			require.NoError(t, b.operator.Pause(t.Context(), admin.Filter{Target: admin.Queue("q"), Key: mallory}))
		}
		paused(mallory)
		b.Put(mallory+"/1", customer+"/1")
		b.handled(customer+"/0", customer+"/1")
		b.Eventually(func() bool { return b.Pending() == 1 }, "it is settled, too, and so no head any more")

		require.NoError(t, b.operator.Pause(t.Context(), admin.Filter{Target: admin.Queue("q"), Key: customer}))
		paused(mallory, customer)
		b.Put(customer + "/2")
		keys := b.stuck(2)
		require.ElementsMatch(t, []string{customer, mallory}, []string{keys[0].Key, keys[1].Key})
		require.ElementsMatch(t, []string{customer + "/2", mallory + "/1"}, []string{keys[0].Head.MessageID, keys[1].Head.MessageID})
		require.NoError(t, b.operator.Resume(t.Context(), admin.Filter{Target: admin.Queue("q"), Key: mallory}))
		paused(customer)
		b.handled(customer+"/0", customer+"/1", mallory+"/1")
		require.NoError(t, b.operator.Resume(t.Context(), admin.Filter{Target: admin.Queue("q"), Key: customer}))
		b.handled(customer+"/0", customer+"/1", customer+"/2", mallory+"/1")
	})
}
