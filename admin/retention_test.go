package admin_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Forwarders and inboxes clean up what operators no longer want, also where they are told to keep
// dead letters themselves.
func TestChangeSettings_F18_applies_to_the_cleanup_of_forwarders_and_inboxes(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T, database *testdb.Database){
		"forwarder": func(t *testing.T, database *testdb.Database) {
			broker := gochannel.NewGoChannel(gochannel.Config{}, nil)
			fwd, err := forwarder.New(database.Postbox(), broker, forwarder.Config{
				Outbox: "cleaned up", DeadLetterRetention: -1,
			}, nil)
			require.NoError(t, err)
			done := make(chan error, 1)
			go func() { done <- fwd.Run(context.Background()) }()
			t.Cleanup(func() {
				require.NoError(t, fwd.Close())
				require.NoError(t, <-done)
				require.NoError(t, broker.Close())
			})
		},
		"store": func(t *testing.T, database *testdb.Database) {
			store, err := inboxstore.New(database.Postbox(), inboxstore.Config{DeadLetterRetention: -1}, nil)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, store.Close()) })
			_, err = store.Defer(t.Context(), "q", inboxstore.Key{Consumer: "c", Topic: "t", MessageID: "1"}, message.NewMessage("1", nil))
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := testdb.SQLite(t)
			b := newBench(t, database)
			kept := spool.New(b.statements, "kept")
			keptID, err := kept.Open(t.Context(), database.DB)
			require.NoError(t, err)
			for i, id := range []int64{b.outboxID(), keptID} {
				b.exec(b.insertHistory(), i+1, id, 1)
				b.buryInbox("of "+name, id)
			}
			b.exec("UPDATE postbox_dead_letters SET died_at = 1")
			require.NoError(t, storeSettings(t.Context(), b.admin, b.target, admin.Settings{Retention: time.Hour, History: time.Hour}))
			require.NoError(t, storeSettings(t.Context(), b.admin, admin.Outbox("kept"), admin.Settings{History: 100 * 365 * 24 * time.Hour}))
			start(t, database)
			b.eventually(func() bool {
				return b.dead() == 1 && database.Count(t, "SELECT COUNT(*) FROM postbox_history") == 1
			}, "what is too old is gone")
			require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_history WHERE spool = ?", keptID))
			require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters WHERE spool = ?", keptID))
		})
	}
}
