package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/examples/internal/pipes"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/internal/testservice"
)

var small = plan{users: 10, activities: 100} // SQLite is slow with the race detector

// The example verifies itself.
// Also covers G2, G4, G5, G6, G12 and feature 0.13.
func TestRun_G3_activities_are_applied_in_order(t *testing.T) {
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
	var duplicates, failures int
	_, err := fmt.Sscanf(lines[len(lines)-1], "RESULT users=10 applied=100 duplicates=%d failures=%d dead_letters=0 wrong=0", &duplicates, &failures)
	require.NoError(t, err, out.String())
	require.Positive(t, duplicates)
	require.Positive(t, failures)
}

// The example is worth something only if it sees what goes wrong.
func TestVerify_detects_wrong_results(t *testing.T) {
	t.Parallel()
	p, err := pipes.Settings{Database: "sqlite", Broker: "gochannel"}.Open(t.Context(), prefix)
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	operator, err := admin.New(p.Tables(prefix), admin.Config{}, nil)
	require.NoError(t, err)
	d := &demo{pipes: p, admin: operator, bus: &noisyBus{}, mishap: newMishap(1)}
	_, err = p.DB.ExecContext(t.Context(), tables+`
		INSERT INTO rewards_activities (user_id, seq, kind, euros) VALUES
			('a', 1, 'purchase', 1000), ('a', 2, 'bonus', 0), ('a', 3, 'purchase', 10), ('a', 4, 'refund', 5), ('b', 1, 'refund', 7);
		INSERT INTO rewards_accounts (user_id, points, tier, applied) VALUES ('a', 1110, 1, 4), ('b', 0, 0, 1);
		INSERT INTO rewards_journal (user_id, position, seq, worker) VALUES
			('a', 1, 1, 'w'), ('a', 2, 2, 'w'), ('a', 3, 3, 'w'), ('a', 4, 4, 'w'), ('b', 1, 1, 'w');`)
	require.NoError(t, err)
	require.NoError(t, d.verify(t.Context(), &bytes.Buffer{}))

	for change, problem := range map[string]string{
		"DELETE FROM rewards_journal WHERE seq = 4":                                                 "1 activities were lost",
		"INSERT INTO rewards_journal (user_id, position, seq, worker) VALUES ('a', 4, 4, 'w')":      "1 activities were applied more than once",
		"UPDATE rewards_journal SET position = 5 - position WHERE user_id = 'a' AND seq IN (2, 3)":  "2 activities were applied out of their order",
		"UPDATE rewards_accounts SET points = 1111 WHERE user_id = 'a'":                             "the account of a is {points:1111 tier:1} and should be {points:1110 tier:1}",
		"UPDATE rewards_accounts SET tier = 1 WHERE user_id = 'b'":                                  "the account of b is {points:0 tier:1} and should be {points:0 tier:0}",
		"DELETE FROM rewards_accounts WHERE user_id = 'a'":                                          "the account of a is {points:0 tier:0} and should be",
		"UPDATE rewards_activities SET seq = CASE seq WHEN 1 THEN 9 ELSE seq END WHERE user_id='a'": "the account of a is",
	} {
		_, err := p.DB.ExecContext(t.Context(), "SAVEPOINT change; "+change)
		require.NoError(t, err)
		require.ErrorContains(t, d.verify(t.Context(), &bytes.Buffer{}), problem, change)
		_, err = p.DB.ExecContext(t.Context(), "ROLLBACK TO change; RELEASE change")
		require.NoError(t, err)
	}

	d.mishap.failures = 1
	require.ErrorContains(t, d.verify(t.Context(), &bytes.Buffer{}), "so did all other users")
}
