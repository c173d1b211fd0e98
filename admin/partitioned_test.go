package admin_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
)

// partition is what docs/dev/scaling.md gives to DBAs, who have to do it before there is a history.
const partition = `
ALTER TABLE postbox_history RENAME TO postbox_history_before;
CREATE TABLE postbox_history (LIKE postbox_history_before INCLUDING ALL) PARTITION BY RANGE (created_at);
DROP TABLE postbox_history_before;
CREATE TABLE postbox_history_rest PARTITION OF postbox_history DEFAULT;`

// A history in partitions by time is written and read like any other, and what is in a partition
// goes with it.
func TestHistory_in_partitions_by_time(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.Postgres(t))
	b.database.Exec(t, partition)
	store, err := inboxstore.New(b.database.Postbox(), inboxstore.Config{}, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Consumer: "payments", Topic: "orders", History: time.Hour}, nil)
	require.NoError(t, err)
	receive := func(id string) {
		_, err := inbox.Process(t.Context(), message.NewMessage(id, []byte("{}")), func(*message.Message) ([]*message.Message, error) { return nil, nil })
		require.NoError(t, err)
	}
	done := func() (ids []string) {
		list, _, err := b.admin.Messages(t.Context(), admin.Filter{Target: admin.Inbox("payments"), Status: admin.Done})
		require.NoError(t, err)
		for _, m := range list {
			ids = append(ids, m.MessageID)
		}
		return ids
	}
	receive("old")
	b.database.Exec(t, "UPDATE postbox_history SET id = 5, created_at = 5")
	b.database.Exec(t, fmt.Sprintf(`ALTER TABLE postbox_history DETACH PARTITION postbox_history_rest;
		CREATE TABLE postbox_history_1 PARTITION OF postbox_history FOR VALUES FROM (0) TO (%[1]d);
		CREATE TABLE postbox_history_2 PARTITION OF postbox_history FOR VALUES FROM (%[1]d) TO (MAXVALUE);
		INSERT INTO postbox_history SELECT * FROM postbox_history_rest;
		DROP TABLE postbox_history_rest`, time.Now().Add(-time.Hour).UnixMicro()))
	receive("new")
	receive("new") // once more
	require.Equal(t, []string{"new", "old"}, done())

	old, err := b.admin.Message(t.Context(), admin.Filter{Target: admin.Inbox("payments"), ID: 5})
	require.NoError(t, err)
	require.Equal(t, "{}", string(old.Payload))

	b.database.Exec(t, "DROP TABLE postbox_history_1")
	require.Equal(t, []string{"new"}, done())
}
