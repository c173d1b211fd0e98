package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/internal/testservice"
)

// The example verifies itself; the second run goes on where the first one ended. Also covers G4.
func TestRun_G3_many_messages_of_a_partition_at_a_time_in_the_order_of_their_keys(t *testing.T) {
	t.Parallel()
	address := testservice.Address(t, testservice.KafkaVariable)
	database := testdb.Postgres(t)
	s := settings{database: database.DSN, kafka: address, topic: "example." + postbox.NewMessageID(), messages: 200, keys: 40}
	for range 2 {
		most, err := run(t.Context(), s)
		require.NoError(t, err)
		require.Greater(t, most, int64(4), "Watermill alone has one at a time")
	}
	require.Equal(t, 400, database.Count(t, "SELECT COUNT(*) FROM partition_example_effects"))
	refused := s
	refused.topic = "no topic of Kafka"
	require.Error(t, send(t.Context(), refused))
	require.Equal(t, 400, database.Count(t, "SELECT COUNT(*) FROM partition_example_sent"), "later runs would wait for the others")
}
