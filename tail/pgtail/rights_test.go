package pgtail_test

import (
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/tail"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// about returns the findings about one thing.
func about(status pgtail.Status, subject string) (found []pgtail.Finding) {
	for _, f := range status.Findings {
		if f.About == subject {
			found = append(found, f)
		}
	}
	return found
}

// Without USAGE on the schema the server says that the table is missing or, if the tables are named
// with their schema, that the role may not look into it.
func TestTail_says_that_its_role_may_not_look_into_the_schema(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dsn := w.role("LOGIN REPLICATION")
	address, err := url.Parse(dsn)
	require.NoError(t, err)
	var schema string
	require.NoError(t, w.DB.QueryRowContext(t.Context(), "SELECT current_schema()").Scan(&schema))
	w.Exec(t, "REVOKE USAGE ON SCHEMA "+schema+" FROM "+address.User.Username())
	grant := "GRANT USAGE ON SCHEMA " + schema + ` TO "` + address.User.Username() + `"`
	named := w.Postbox()
	named.Schema = schema
	for _, db := range []postbox.Database{w.Postbox(), named} {
		status, err := pgtail.Inspect(t.Context(), db, pgtail.Config{DSN: dsn, Publication: w.publication()})
		require.NoError(t, err)
		found := about(status, tail.AboutRole)
		require.Len(t, found, 1)
		require.Equal(t, grant, found[0].Fix)
	}
	f := w.start(&broker{}, forwarder.Config{Tail: w.tail(func(c *pgtail.Config) { c.DSN, c.Required = dsn, true })})
	require.ErrorContains(t, <-f.ended, grant)
}

// Each role has the rights of docs/security.md and no others: one makes the tables and sets the log
// up, one reads the log, and one looks.
func TestSetup_needs_few_rights(t *testing.T) {
	t.Parallel()
	w := &world{T: t, Database: testdb.PostgresLog(t)}
	owner := w.openAs(w.granted("LOGIN", "log setup"))
	mine := w.On(owner)
	ctx := t.Context()
	require.NoError(t, postbox.Migrate(ctx, mine))
	require.NoError(t, pgtail.Setup(ctx, mine, w.publication()))

	looks := w.On(w.openAs(w.granted("LOGIN", "operator")))
	config := pgtail.Config{DSN: w.granted("LOGIN REPLICATION", "log reader"), Publication: w.publication()}
	status, err := pgtail.Inspect(ctx, looks, config)
	require.NoError(t, err)
	require.Len(t, status.Findings, 1, "no process reads")
	require.Equal(t, tail.AboutReader, status.Findings[0].About)

	require.ErrorContains(t, pgtail.Setup(ctx, looks, w.publication()+"_2"), "does not own the table")
	require.ErrorContains(t, pgtail.Remove(ctx, looks, w.publication()), "must be owner")

	// A publication that is there needs no CREATE on the database.
	var role, database string
	require.NoError(t, owner.QueryRowContext(ctx, "SELECT current_user, current_database()").Scan(&role, &database))
	w.Exec(t, "REVOKE CREATE ON DATABASE "+database+" FROM "+role)
	require.NoError(t, pgtail.Setup(ctx, mine, w.publication()))
	require.NoError(t, pgtail.Remove(ctx, mine, w.publication()))
}

// granted makes a role with attributes and the rights that docs/security.md has under these
// headings, and returns its address.
func (w *world) granted(attributes string, headings ...string) (dsn string) {
	w.Helper()
	dsn = w.role(attributes)
	address, err := url.Parse(dsn)
	require.NoError(w, err)
	text, err := os.ReadFile("../../docs/security.md")
	require.NoError(w, err)
	var schema, database string
	require.NoError(w, w.DB.QueryRowContext(w.Context(), "SELECT current_schema(), current_database()").Scan(&schema, &database))
	names := strings.NewReplacer(" SCHEMA public ", " SCHEMA "+schema+" ", " DATABASE shop ", " DATABASE "+database+" ")
	to := regexp.MustCompile(` TO \w+;`)
	for _, heading := range headings {
		_, section, found := strings.Cut(string(text), "\n### "+heading+"\n")
		require.True(w, found, heading)
		_, block, found := strings.Cut(section, "```sql\n")
		require.True(w, found, heading)
		block, _, _ = strings.Cut(block, "```")
		for grant := range strings.Lines(block) {
			if !strings.Contains(grant, "postbox_writers") { // which PostgreSQL does not have
				w.Exec(w.T, names.Replace(to.ReplaceAllString(grant, " TO "+address.User.Username()+";")))
			}
		}
	}
	return dsn
}
