package pgtail_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// Without USAGE on the schema the server says that the table is missing or, if the tables are named with their schema, that the role may not look into it.
func TestOutbox_says_that_its_role_may_not_look_into_the_schema(t *testing.T) {
	t.Parallel()
	w := newOutboxWorld(t)
	dsn := w.role("LOGIN REPLICATION")
	address, err := url.Parse(dsn)
	require.NoError(t, err)
	var schema string
	require.NoError(t, w.DB.QueryRowContext(t.Context(), "SELECT current_schema()").Scan(&schema))
	w.Exec(t, "REVOKE USAGE ON SCHEMA "+schema+" FROM "+address.User.Username())
	config := pgtail.OutboxConfig{DSN: dsn}
	named := w.Postbox()
	named.Schema = schema
	for _, db := range []postbox.Database{w.Postbox(), named} {
		grant := "GRANT USAGE ON SCHEMA " + schema + ` TO "` + address.User.Username() + `"`
		status, err := pgtail.InspectOutbox(t.Context(), db, config)
		require.NoError(t, err)
		found := about(status, pgtail.AboutRole)
		require.Len(t, found, 1)
		require.Equal(t, grant, found[0].Fix)
		status, err = pgtail.Inspect(t.Context(), db, pgtail.Config{DSN: dsn})
		require.NoError(t, err)
		require.Equal(t, grant, about(status, pgtail.AboutRole)[0].Fix)
		err = acceptLoss(t.Context(), db, config)
		require.ErrorContains(t, err, grant)
		require.False(t, dialect.LacksTable(err), "the table is there")
	}
	reader, err := pgtail.NewOutbox(config)
	require.NoError(t, err)
	f := w.start(&broker{}, forwarder.Config{Tail: reader})
	select {
	case err := <-f.ended:
		require.ErrorContains(t, err, "GRANT USAGE ON SCHEMA "+schema)
	case <-time.After(patience):
		require.Fail(t, "it runs")
	}
}

// Each role has the rights of docs/security.md and no others: one makes the tables and sets the log up, one reads the log, and one looks.
func TestSetup_needs_few_rights(t *testing.T) {
	t.Parallel()
	w := &world{T: t, Database: testdb.PostgresLog(t)}
	w.needsMessages()
	owner := w.openAs(w.granted("LOGIN", "log setup"))
	mine := w.On(owner)
	config := pgtail.OutboxConfig{DSN: w.granted("LOGIN REPLICATION", "log reader")}
	ctx := t.Context()
	require.NoError(t, postbox.Migrate(ctx, mine))
	t.Cleanup(func() {
		require.Eventually(t, func() bool { return w.dropSlot() }, patience, testdb.PollPause)
	})
	require.NoError(t, pgtail.Setup(ctx, mine, w.publication()))
	require.NoError(t, pgtail.SetupOutbox(ctx, mine, config))

	looks := w.On(w.openAs(w.granted("LOGIN", "operator")))
	status, err := pgtail.Inspect(ctx, looks, pgtail.Config{DSN: config.DSN, Publication: w.publication()})
	require.NoError(t, err)
	require.Len(t, status.Findings, 1, "no process reads")
	status, err = pgtail.InspectOutbox(ctx, looks, config)
	require.NoError(t, err)
	require.True(t, status.Slot.Exists)
	require.Len(t, about(status, pgtail.AboutReader), 1)
	require.Empty(t, about(status, pgtail.AboutRole))

	require.ErrorContains(t, pgtail.Setup(ctx, looks, w.publication()+"_2"), "does not own the table")
	require.ErrorContains(t, pgtail.Remove(ctx, looks, w.publication()), "must be owner")
	require.ErrorContains(t, pgtail.SetupOutbox(ctx, mine, pgtail.OutboxConfig{DSN: w.role("LOGIN")}), "LOGIN REPLICATION")
	_, err = owner.ExecContext(ctx, "SELECT pg_drop_replication_slot("+permanentSlot+")")
	require.ErrorContains(t, err, "(42501)", "the role that sets up needs no REPLICATION")

	// A publication that is there needs no CREATE on the database.
	require.True(t, w.dropSlot())
	var role, database string
	require.NoError(t, owner.QueryRowContext(ctx, "SELECT current_user, current_database()").Scan(&role, &database))
	w.Exec(t, "REVOKE CREATE ON DATABASE "+database+" FROM "+role)
	require.NoError(t, acceptLoss(ctx, mine, config))
	require.NoError(t, pgtail.RemoveOutbox(ctx, mine, config))
	require.NoError(t, pgtail.Remove(ctx, mine, w.publication()))
}
