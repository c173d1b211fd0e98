package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMain lets this test binary be the shop, as the demo starts it.
func TestMain(m *testing.M) {
	if !isShop() {
		os.Exit(m.Run())
	}
	if err := shop(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Also covers G4.
func TestDemo_G2_loses_no_order_and_pays_none_twice(t *testing.T) {
	t.Parallel()
	const orders, kills = 80, 3 // SQLite is slow with the race detector
	var out bytes.Buffer
	result, err := runDemo(t.Context(), &out, plan{Orders: orders, Kills: kills, OneIn: 4})
	require.NoError(t, err, out.String())

	require.Equal(t, orders, result.committed)
	require.Equal(t, orders, result.applied)
	require.Zero(t, result.lost)
	require.Zero(t, result.appliedTwice)
	require.Zero(t, result.outOfOrder)
	require.Positive(t, result.duplicates)
	require.Equal(t, kills, result.kills)
	require.Equal(t, 2*orders, result.events)
	require.Equal(t, result.ordered, result.charged)

	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Equal(t, fmt.Sprintf("RESULT committed=80 applied=80 lost=0 applied_twice=0 duplicates_absorbed=%d kills=3", result.duplicates),
		lines[len(lines)-1])
}

// The demo is worth something only if it sees what goes wrong.
func TestBooks_detect_wrong_results(t *testing.T) {
	t.Parallel()
	db, err := openDatabase(t.Context(), t.TempDir()+"/shop.db")
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	_, err = db.ExecContext(t.Context(), `
		INSERT INTO orders (id, customer, cents, paid) VALUES
			(1, 'a', 10, 10), (2, 'a', 10, 10), (3, 'b', 10, 0), (4, 'b', 10, 20), (5, 'c', 10, 10);
		INSERT INTO payments (order_id, customer, cents) VALUES (2, 'a', 10), (1, 'a', 10), (3, 'b', 10), (4, 'b', 10), (4, 'b', 10);
		INSERT INTO accounts (customer, charged) VALUES ('a', 20), ('b', 30);
		INSERT INTO deliveries (topic, message_id) VALUES ('t', 'x'), ('t', 'x'), ('t', 'x'), ('t', 'y');
		INSERT INTO effects (topic, message_id, last_delivery) VALUES ('t', 'x', 2), ('t', 'y', 4);`)
	require.NoError(t, err)

	result, err := books{db: db}.outcome(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, outcome{
		committed: 5, applied: 4, lost: 2, appliedTwice: 1, outOfOrder: 1,
		events: 2, deliveries: 4, duplicates: 1, ordered: 50, charged: 50, kills: 1,
	}, result)
	verdict := result.verdict(plan{Orders: 5, Kills: 1})
	require.ErrorContains(t, verdict, "orders were lost")
	require.ErrorContains(t, verdict, "orders were paid twice")
	require.ErrorContains(t, verdict, "payments were taken in another order")
	require.ErrorContains(t, verdict, "orders are missing")
	require.NotContains(t, verdict.Error(), "charged")

	_, err = db.ExecContext(t.Context(), `
		INSERT INTO postbox_dead_letters (origin, subject, consumer, topic, message_id, payload, metadata, created_at, died_at, attempts, error)
		VALUES (1, x'00', 'payments', 'orders.placed', 'z', CAST('{"order_id":5}' AS BLOB), x'', 0, 0, 15, 'no')`)
	require.NoError(t, err)
	result, err = books{db: db}.outcome(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, 1, result.lost, "a dead letter is not lost")
	require.Equal(t, 1, result.deadLetters)
}
