package testdb_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// descriptions select what there is in a database, by name.
var descriptions = map[postbox.Dialect][]string{
	postbox.SQLite: {"SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"},
	postbox.PostgreSQL: {
		`SELECT c.relname, concat_ws(' ', c.relkind, c.reloptions, c.relpersistence, replace(pg_get_indexdef(i.indexrelid), current_schema(), ''))
			FROM pg_class c LEFT JOIN pg_index i ON i.indexrelid = c.oid WHERE c.relnamespace = current_schema()::regnamespace`,
		`SELECT c.relname || '.' || a.attname, concat_ws(' ', a.attnum, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, a.attstattarget, a.attstorage,
				pg_get_expr(d.adbin, d.adrelid))
			FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
			WHERE c.relnamespace = current_schema()::regnamespace AND a.attnum > 0`,
		`SELECT conrelid::regclass || '.' || conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = current_schema()::regnamespace`,
		`SELECT proname, replace(pg_get_functiondef(oid), current_schema(), '') FROM pg_proc WHERE pronamespace = current_schema()::regnamespace`,
		`SELECT inhrelid::regclass::text, inhparent::regclass::text FROM pg_inherits JOIN pg_class ON oid = inhrelid WHERE relnamespace = current_schema()::regnamespace`,
	},
	postbox.MySQL: {
		"SELECT table_name, CONCAT_WS(' ', engine, table_collation, create_options) FROM information_schema.tables WHERE table_schema = DATABASE()",
		`SELECT CONCAT(table_name, '.', column_name), CONCAT_WS(' ', ordinal_position, column_type, is_nullable, column_default, extra, collation_name)
			FROM information_schema.columns WHERE table_schema = DATABASE()`,
		`SELECT CONCAT(table_name, '.', index_name, '.', seq_in_index), CONCAT_WS(' ', column_name, non_unique) FROM information_schema.statistics WHERE table_schema = DATABASE()`,
		`SELECT CONCAT(table_name, '.', constraint_name), check_clause FROM information_schema.check_constraints WHERE constraint_schema = DATABASE()`,
		`SELECT CONCAT(table_name, '.', constraint_name), constraint_type FROM information_schema.table_constraints WHERE constraint_schema = DATABASE()`,
	},
}

func TestDatabase_Migrate_makes_the_tables_that_users_get(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		describe := func(d *testdb.Database) map[string]string {
			parts := map[string]string{}
			queries := append([]string{"SELECT version_id, is_applied FROM postbox_version", "SELECT 'rows of identity', COUNT(*) FROM postbox_identity"},
				descriptions[d.Dialect]...)
			for i, query := range queries {
				rows, err := d.DB.QueryContext(t.Context(), query)
				require.NoError(t, err, query)
				for rows.Next() {
					var name, text string
					require.NoError(t, rows.Scan(&name, &text))
					parts[fmt.Sprint(i, " ", name)] = strings.Join(strings.Fields(text), " ")
				}
				require.NoError(t, rows.Err())
				require.NoError(t, rows.Close())
			}
			return parts
		}
		quick := describe(database.Migrate(t))
		var another *testdb.Database
		switch database.Dialect {
		case postbox.SQLite:
			another = testdb.SQLite(t)
		case postbox.PostgreSQL:
			another = testdb.Postgres(t)
		case postbox.MySQL:
			another = testdb.MySQL(t)
		}
		require.NoError(t, postbox.Migrate(t.Context(), another.Postbox()))
		migrated := describe(another)
		require.Greater(t, len(migrated), 30)
		require.Equal(t, migrated, quick)

		identity := func(d *testdb.Database) (id string) {
			require.NoError(t, d.DB.QueryRowContext(t.Context(), "SELECT identity FROM postbox_identity").Scan(&id))
			return id
		}
		require.NotEqual(t, identity(another), identity(database))
	})
}
