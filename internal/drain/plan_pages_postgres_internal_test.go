package drain

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A plan that is made while the table has no page reads all of it, and is kept while it grows.
// TRUNCATE, VACUUM FULL and a restored dump take away the pages that the migration has given it.
// Then a removal looks each row up in a hash of ids: compared with the place of each message, a
// thousand of 60,000 took 0.7 s.
func TestPlans_of_a_removal_without_pages_compare_no_message_with_each_on_postgres(t *testing.T) {
	t.Parallel()
	for name, takeAway := range map[string]string{
		"truncated": "TRUNCATE postbox_messages, postbox_waiting", "vacuumed in full": "VACUUM FULL postbox_messages",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := testdb.Postgres(t)
			own := newOutbox(t, database)
			database.Exec(t, takeAway)
			conn, err := database.DB.Conn(t.Context())
			require.NoError(t, err)
			defer func() { _ = conn.Close() }()
			query := own.Statements.RemoveWhere(1, []dialect.Ref{{ID: 1, CreatedAt: 1, Token: 1}, {ID: 2, CreatedAt: 1, Token: 1}}, nil)
			for _, text := range []string{"SET plan_cache_mode = force_generic_plan", "PREPARE removal AS " + query.Text} {
				_, err := conn.ExecContext(t.Context(), text)
				require.NoError(t, err)
			}
			rows, err := conn.QueryContext(t.Context(), "EXPLAIN EXECUTE removal (NULL"+strings.Repeat(", NULL", len(query.Args)-1)+")")
			require.NoError(t, err)
			defer func() { _ = rows.Close() }()
			var plan []string
			for rows.Next() {
				var line string
				require.NoError(t, rows.Scan(&line))
				plan = append(plan, line)
			}
			require.NoError(t, rows.Err())
			text := strings.Join(plan, "\n") // other transactions may still see rows, which VACUUM FULL keeps with their pages
			inHash := regexp.MustCompile(`Seq Scan on postbox_messages m .*\n\s*Filter: \(\(\(hashed SubPlan`)
			require.Len(t, inHash.FindAllString(text, -1), strings.Count(text, "Seq Scan on postbox_messages"), text)
			require.Regexp(t, "(Seq|Tid) Scan on postbox_messages m ", text)
		})
	}
}
