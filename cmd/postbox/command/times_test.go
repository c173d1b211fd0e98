package command_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// The database can have times that JSON cannot: one of them must not break a list.
func TestOutput_times_beyond_the_last_year_of_JSON(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	later := draft("m-1", "orders", "k")
	later.Delay = time.Hour
	b.append(b.outbox, later)
	b.letter("d-1", "orders", "card declined")
	b.database.Exec(t, "UPDATE postbox_messages SET available_at = ?", time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro())
	b.database.Exec(t, "UPDATE postbox_dead_letters SET died_at = ?", time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro())
	for _, list := range []string{"messages", "dead"} {
		out := b.ok(list, "list", "-o", "json")
		require.True(t, json.Valid([]byte(out)), out)
		require.Contains(t, out, `"9999-12-31T23:59:59Z"`)
	}
}

// Each time in JSON is UTC, whatever the time zone of this machine.
func TestQueues_are_in_UTC(t *testing.T) {
	zone := time.Local                           //nolint:gosmopolitan // the test is about it
	time.Local = time.FixedZone("there", 3*3600) //nolint:gosmopolitan,reassign // restored below; no other test runs meanwhile
	defer func() { time.Local = zone }()         //nolint:gosmopolitan,reassign // as above
	b := newBench(t, testdb.SQLite(t))
	b.append(b.outbox, draft("m-1", "orders", "k"))
	require.NoError(t, b.admin().Pause(t.Context(), admin.Filter{Target: admin.Outbox("outbox"), All: true}))
	require.Regexp(t, `"paused_since":"[^"+]*Z"`, b.ok("queues", "-o", "json"))
}
