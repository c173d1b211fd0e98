package pipeline_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Whatever Defer says of a message whose COMMIT went wrong: delivered again until it is acked, it
// is stored once. PostgreSQL is told to commit with the statement itself, and so there is no COMMIT
// to lose. Also covers G2 and F26.
func TestCommitUnknown_G5_deferred_message_is_stored_once(t *testing.T) {
	t.Parallel()
	for _, how := range []loss{answerLost, commitLost} {
		t.Run(string(how), func(t *testing.T) {
			t.Parallel()
			direct := testdb.MySQL(t).Migrate(t)
			wired, w := throughWire(t, direct)
			wired.DB.SetMaxOpenConns(1)
			store, err := inboxstore.New(wired.Postbox(), inboxstore.Config{CacheSize: -1}, nil)
			require.NoError(t, err)
			defer func() { require.NoError(t, store.Close()) }()
			deliver := func(id string) error {
				_, err := store.Defer(t.Context(), "fraud", inboxstore.Key{Consumer: "c", MessageID: id}, message.NewMessage(id, nil))
				return err
			}
			require.NoError(t, deliver(postbox.NewMessageID()))
			w.cutNext(how)
			id := postbox.NewMessageID()
			if err := deliver(id); err == nil {
				require.Equal(t, 2, direct.Count(t, "SELECT COUNT(*) FROM postbox_messages"), "acked, and so it is there")
			}
			require.Equal(t, 1, w.done())
			require.NoError(t, deliver(id))
			require.Equal(t, 2, direct.Count(t, "SELECT COUNT(*) FROM postbox_messages"))
			require.Equal(t, 2, direct.Count(t, "SELECT COUNT(*) FROM postbox_claims"))
		})
	}
}
