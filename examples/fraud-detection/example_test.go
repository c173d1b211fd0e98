package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/examples/internal/pipes"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/internal/testservice"
)

var small = plan{users: 12, suspects: 4, products: 3, orders: 60}

// The example verifies itself: one user's event is a dead letter on the way, and at the end there
// is none. Also covers G2, G5, G7, G9 and feature 0.12.
func TestRun_G4_suspects_are_reviewed_once(t *testing.T) {
	t.Parallel()
	t.Run("sqlite and gochannel", func(t *testing.T) {
		t.Parallel()
		requireResult(t, pipes.Settings{Database: "sqlite", Broker: "gochannel"})
	})
	for broker, variable := range map[string]string{"rabbitmq": testservice.AMQPVariable, "kafka": testservice.KafkaVariable} {
		t.Run("postgres and "+broker, func(t *testing.T) {
			t.Parallel()
			address := testservice.Address(t, variable)
			requireResult(t, pipes.Settings{
				Database: "postgres", DSN: testdb.Postgres(t).DSN,
				Broker: broker, BrokerURL: address, TopicPrefix: "example." + postbox.NewMessageID() + ".",
			})
		})
	}
}

func requireResult(t *testing.T, settings pipes.Settings) {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, settings, small), out.String())
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var confirmed, cancelled, refused, twice int
	_, err := fmt.Sscanf(lines[len(lines)-1], "RESULT confirmed=%d cancelled=%d refused=%d sent_twice=%d dead_letters=0 wrong=0",
		&confirmed, &cancelled, &refused, &twice)
	require.NoError(t, err, out.String())
	require.Positive(t, confirmed+cancelled)
	require.Positive(t, twice)
	require.Contains(t, out.String(), "The file is repaired, dead letters requeued: 1\n")
}

// The example is worth something only if it sees what goes wrong.
func TestVerify_detects_wrong_results(t *testing.T) {
	t.Parallel()
	p, err := pipes.Settings{Database: "sqlite", Broker: "gochannel"}.
		Open(t.Context(), prefixOf("users"), prefixOf("products"), prefixOf("orders"))
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	s, err := newShop(p)
	require.NoError(t, err)
	_, err = p.DB.ExecContext(t.Context(), tables+`
		INSERT INTO fraud_users (id, status, reviews) VALUES ('eve', 'SUSPECT', 2), ('good', 'HONEST', 0);
		INSERT INTO fraud_customers (id, orders, suspect) VALUES ('eve', 2, TRUE), ('good', 1, FALSE);
		INSERT INTO fraud_products (id, delivered, stock) VALUES ('p', 10, 7);
		INSERT INTO fraud_catalogue (id) VALUES ('p');
		INSERT INTO fraud_orders (id, user_id, product_id, quantity, status, reservations, reviews) VALUES
			('1', 'eve', 'p', 1, 'CONFIRMED', 1, 1),
			('2', 'eve', 'p', 1, 'CONFIRMED', 1, 1),
			('3', 'good', 'p', 1, 'RESERVED', 1, 0);`)
	require.NoError(t, err)
	require.False(t, isFraud("eve"), "the check confirms the orders of this one")
	require.NoError(t, s.verify(t.Context(), &bytes.Buffer{}, p.DB))

	for change, problem := range map[string]string{
		"UPDATE fraud_orders SET reviews = 0 WHERE id = '1'":         "1 active orders of suspects were not reviewed",
		"UPDATE fraud_orders SET reviews = 2 WHERE id = '1'":         "1 orders were reviewed more than once",
		"UPDATE fraud_orders SET reviews = 1 WHERE id = '3'":         "1 orders of honest users were touched",
		"UPDATE fraud_orders SET status = 'CANCELLED' WHERE id = 3":  "1 orders of honest users were touched",
		"UPDATE fraud_orders SET status = 'CANCELLED' WHERE id = 1":  "1 orders were reviewed against the answer",
		"UPDATE fraud_users SET reviews = 3 WHERE id = 'eve'":        "1 users heard of another number of reviews",
		"UPDATE fraud_orders SET reservations = 2 WHERE id = '3'":    "1 orders were not reserved exactly once",
		"UPDATE fraud_products SET stock = 6":                        "1 stocks do not add up",
		"INSERT INTO fraud_customers (id) VALUES ('good')":           "1 users are not known",
		"DELETE FROM fraud_catalogue":                                "1 products are not known",
		"UPDATE fraud_orders SET quantity = 2 WHERE user_id = 'eve'": "1 stocks do not add up",
	} {
		_, err := p.DB.ExecContext(t.Context(), "SAVEPOINT change; "+change)
		require.NoError(t, err)
		require.ErrorContains(t, s.verify(t.Context(), &bytes.Buffer{}, p.DB), problem, change)
		_, err = p.DB.ExecContext(t.Context(), "ROLLBACK TO change; RELEASE change")
		require.NoError(t, err)
	}
}
