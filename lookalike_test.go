package postbox_test

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A server that only speaks the protocol of PostgreSQL, for which a function stands in that comes
// before that of the server.
func TestMigrate_refuses_a_server_that_only_looks_alike(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	address, err := url.Parse(database.DSN)
	require.NoError(t, err)
	query := address.Query()
	database.Exec(t, `CREATE FUNCTION version() RETURNS text LANGUAGE sql AS $$ SELECT 'PostgreSQL 15.2-YB-2.25.0.0-b0'::text $$`)
	query.Set("search_path", query.Get("search_path")+", pg_catalog")
	address.RawQuery = query.Encode()
	other := *database
	other.DSN = address.String()
	db := other.On(other.Open(t))
	err = postbox.Migrate(t.Context(), db)
	require.ErrorIs(t, err, dialect.ErrUnfit)
	require.ErrorContains(t, err, "YugabyteDB")
	require.ErrorContains(t, err, "docs/databases.md#servers-that-look-alike")
	db.AnyServer = true
	require.NoError(t, postbox.Migrate(t.Context(), db))
}
