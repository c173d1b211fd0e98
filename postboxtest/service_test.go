package postboxtest_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
)

// docs/testing.md shows this test of a handler.
func TestService_handles_each_message_once(t *testing.T) {
	t.Parallel()
	database := openTestDatabase(t)
	_, err := database.DB.ExecContext(t.Context(), "CREATE TABLE payments (order_id TEXT)")
	require.NoError(t, err)
	store, err := inboxstore.New(database, inboxstore.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Consumer: "payments", Topic: "orders", Retry: postbox.RetryProfile{Base: time.Millisecond}}, nil)
	require.NoError(t, err)

	msg := message.NewMessage("1", []byte("order-1"))
	for _, first := range []bool{true, false} { // the second delivery is a duplicate
		processed, err := inbox.Process(t.Context(), msg, pay)
		require.NoError(t, err)
		require.Equal(t, first, processed)
	}
	var payments int
	require.NoError(t, database.DB.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM payments").Scan(&payments))
	require.Equal(t, 1, payments)
}

func TestService_called_by_itself_has_no_transaction(t *testing.T) {
	t.Parallel()
	_, err := pay(message.NewMessage("1", nil))
	require.ErrorIs(t, err, postbox.ErrNoTransaction)
}

func openTestDatabase(t *testing.T) postbox.Database {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+t.TempDir()+"/test.db?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	database := postbox.Database{DB: db, Dialect: postbox.SQLite}
	require.NoError(t, postbox.Migrate(t.Context(), database))
	return database
}

// pay is a handler as the README has it.
func pay(msg *message.Message) ([]*message.Message, error) {
	tx, found := postbox.TxFromContext(msg.Context())
	if !found {
		return nil, postbox.ErrNoTransaction
	}
	_, err := tx.ExecContext(msg.Context(), "INSERT INTO payments VALUES (?)", string(msg.Payload))
	return nil, err
}
