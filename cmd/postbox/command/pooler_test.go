package command_test

import (
	"net/url"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/internal/testservice"
)

// Without it, a command could meet the statement of another one, with its own arguments.
func TestCommands_work_side_by_side_through_a_pooler_in_transaction_mode(t *testing.T) {
	t.Parallel()
	pooler := os.Getenv(testservice.PgBouncerVariable)
	if pooler == "" {
		t.Skip("PgBouncer is missing")
	}
	b := newBench(t, testdb.Postgres(t))
	b.outboxID()
	direct, err := url.Parse(b.database.DSN)
	require.NoError(t, err)
	environment := map[string]string{"POSTBOX_DSN": pooler, "POSTBOX_SCHEMA": direct.Query().Get("search_path")}
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			for range 5 {
				r := execute(t.Context(), command.Options{}, environment, "messages", "list", "--outbox", "outbox")
				assert.Equal(t, command.ExitOK, r.code, r.err)
			}
		})
	}
	all.Wait()

	r := execute(t.Context(), command.Options{}, map[string]string{"POSTBOX_DSN": pooler + "&search_path=shop"}, "queues")
	require.Contains(t, r.err, "unsupported startup parameter: search_path")
	require.Contains(t, r.err, "docs/poolers.md says what to set")
}
