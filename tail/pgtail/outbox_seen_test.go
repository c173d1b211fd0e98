package pgtail_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
)

// A transaction finds the tables of its search_path. What a publisher knows of the slot of some tables says nothing of others.
func TestOutbox_G1_looks_for_the_slot_of_the_tables_that_the_transaction_finds(t *testing.T) {
	t.Parallel()
	w, other := newOutboxWorld(t), newOutboxWorld(t)
	require.True(t, other.dropSlot())
	outbox := w.emitter("outbox")
	publish := func(in *world, id string) error {
		var schema string
		require.NoError(t, in.DB.QueryRowContext(t.Context(), "SELECT current_schema()").Scan(&schema))
		tx, err := w.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		_, err = tx.ExecContext(t.Context(), "SET LOCAL search_path TO "+schema)
		require.NoError(t, err)
		if err := outbox.Bind(tx).Publish("orders", keyed(id, "key")); err != nil {
			return err
		}
		return tx.Commit()
	}
	want := make([]string, 20)
	for n := range want {
		want[n] = fmt.Sprint(n)
		require.NoError(t, publish(w, want[n]))
		require.ErrorContains(t, publish(other, want[n]), "postbox log setup --without-rows")
		require.NoError(t, publish(w, want[n]+" again"))
	}
	b := &broker{}
	f := w.reader(b)
	w.eventually(func() bool { return b.has(want...) }, "all are published that were accepted")
	f.stop(t)
}

// Of the transactions of some libraries it is not known how many rows a statement has returned, and so not whether it has looked for the slot.
func TestOutbox_publishes_once_in_transactions_that_count_no_rows(t *testing.T) {
	t.Parallel()
	w, b, outbox := newOutboxWorld(t), &broker{}, (*forwarder.Publisher)(nil)
	publish := func(bind func(tx *sql.Tx) postbox.Executor, id string) error {
		tx, err := w.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		if err := outbox.Bind(bind(tx)).Publish("orders", keyed(id, "key")); err != nil {
			return err
		}
		return tx.Commit()
	}
	counted := func(tx *sql.Tx) postbox.Executor { return tx }
	uncounted := func(tx *sql.Tx) postbox.Executor {
		return postbox.ExecFunc(func(ctx context.Context, query string, args ...any) (struct{}, error) {
			_, err := tx.ExecContext(ctx, query, args...)
			return struct{}{}, err
		})
	}
	outbox = w.emitter("outbox")
	for _, id := range []string{"1", "2", "3"} {
		require.NoError(t, publish(counted, id))
	}
	require.ErrorContains(t, publish(uncounted, "4"), "roll the transaction back, and publish again")
	for _, ids := range [][2]string{{"4", "5"}, {"6", "7"}} { // it knows now that such transactions come
		require.NoError(t, publish(uncounted, ids[0]))
		require.NoError(t, publish(counted, ids[1]))
	}
	require.NoError(t, publish(uncounted, "8"))
	f := w.reader(b)
	w.eventually(func() bool { return b.has("8") }, "they are published")
	require.Equal(t, []string{"1", "2", "3", "4", "5", "6", "7", "8"}, b.ids("key"))
	f.stop(t)
}
