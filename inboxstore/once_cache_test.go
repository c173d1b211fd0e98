package inboxstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestStore_cache_answers_for_committed_claims_only(t *testing.T) {
	t.Parallel()
	database := withEffects(t, testdb.SQLite(t))
	store := inboxtest.StoreFor(t, database, database.DB, func(c *inboxstore.Config) { c.CacheSize = 10 })
	_, err := store.Once(t.Context(), key, effect(t, inboxtest.ErrHandler))
	require.ErrorIs(t, err, inboxtest.ErrHandler)
	fresh, err := store.Once(t.Context(), key, effect(t, nil))
	require.NoError(t, err)
	require.True(t, fresh)

	tx, err := database.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	other := inboxstore.Key{Consumer: "other", MessageID: "1"}
	_, err = store.Once(postbox.ContextWithTx(t.Context(), tx), other, effect(t, nil))
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	fresh, err = store.Once(t.Context(), other, effect(t, nil))
	require.NoError(t, err)
	require.True(t, fresh, "a claim that its owner rolled back is none")

	dead := inboxstore.Key{Consumer: "dead", MessageID: "1"}
	require.NoError(t, store.Bury(t.Context(), dead, message.NewMessage("1", nil), 15, inboxtest.ErrHandler))
	fresh, err = store.Once(t.Context(), dead, effect(t, nil))
	require.NoError(t, err)
	require.False(t, fresh)
	database.Exec(t, "DELETE FROM postbox_claims WHERE claim_key = (SELECT subject FROM postbox_dead_letters)") // a requeue
	fresh, err = store.Once(t.Context(), dead, effect(t, nil))
	require.NoError(t, err)
	require.True(t, fresh, "what an operator has set free is handled")

	require.NoError(t, database.DB.Close())
	_, err = store.Once(t.Context(), key, effect(t, nil))
	require.Error(t, err, "without its database nothing is a duplicate")
}

// A promoted standby or a restored backup has lost the claim together with the effect.
func TestStore_G4_cache_does_not_answer_for_a_claim_that_is_gone(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		withEffects(t, database)
		store := inboxtest.StoreFor(t, database, database.DB, nil)
		for range 2 {
			_, err := store.Once(t.Context(), key, effect(t, nil))
			require.NoError(t, err)
		}
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM effects"))
		database.Exec(t, "DELETE FROM postbox_claims")
		database.Exec(t, "DELETE FROM effects")
		fresh, err := store.Once(t.Context(), key, effect(t, nil))
		require.NoError(t, err)
		require.True(t, fresh)
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM effects"))
	})
}
