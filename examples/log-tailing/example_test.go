package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/internal/testservice"
)

// The example verifies itself.
// Also covers G2 and G3.
func TestRun_G4_each_message_has_its_effect_once_and_in_order(t *testing.T) {
	t.Parallel()
	address := testservice.Address(t, testservice.KafkaVariable)
	database := testdb.PostgresLog(t)
	s := settings{database: database.DSN, kafka: address, topic: "example." + postbox.NewMessageID(), orders: 300}
	require.NoError(t, run(t.Context(), s))
	require.Equal(t, 300, database.Count(t, "SELECT COUNT(*) FROM tail_example_shipments"))
	require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM tail_example_messages"))
}
