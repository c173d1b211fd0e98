package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/examples/internal/pipes"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// The endpoint is down at first, breaks connections after it has stored an event, and another one
// refuses an event. Each order is booked once, and each customer's in order.
func TestRun_G4_webhooks_have_their_effect_once_and_in_order(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]func(t *testing.T) pipes.Settings{
		"sqlite": func(*testing.T) pipes.Settings { return pipes.Settings{Database: "sqlite", Broker: "gochannel"} },
		"postgres": func(t *testing.T) pipes.Settings {
			t.Helper()
			return pipes.Settings{Database: "postgres", DSN: testdb.Postgres(t).DSN, Broker: "gochannel"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			require.NoError(t, run(t.Context(), &out, settings(t), 50), out.String())
			require.Regexp(t, `Dead letter 1 for the partner: .* answered 422: we do not like this order`, out.String())
			require.Contains(t, out.String(), "RESULT orders=50 lost=0 booked_twice=0 out_of_order=0 dead_letters=1 ")
		})
	}
}
