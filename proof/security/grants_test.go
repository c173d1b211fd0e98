package security_test

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// cast is the roles of one test on one database: a user of the server for each role of
// docs/security.md, with the rights that the document grants it and no others.
type cast struct {
	database *testdb.Database
	suffix   string
	users    []string
}

// rolePassword is the same for all of them.
const rolePassword = "opensesame"

var casts atomic.Int64

func newCast(t *testing.T, database *testdb.Database) *cast {
	t.Helper()
	c := &cast{database: database, suffix: fmt.Sprintf("_%d_%d", os.Getpid(), casts.Add(1))}
	database.Exec(t, createOrders)
	return c
}

// headings of roles that are not named by their heading.
var headings = map[string]string{"sources": "forwarder with sources", "unique_producer": "producer of unique keys", "history": "consumer with a history"}

// grants returns the statements of the document for a role: those in the first block of SQL under
// its heading.
func grants(t *testing.T, role string) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/security.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "\n### "+cmp.Or(headings[role], role)+"\n")
	require.True(t, found, role)
	section, _, _ = strings.Cut(section, "\n### ")
	_, block, found := strings.Cut(section, "```sql\n")
	require.True(t, found, role)
	block, _, _ = strings.Cut(block, "```")
	return strings.FieldsFunc(block, func(r rune) bool { return r == ';' })
}

// foreign finds what a database does not have.
var foreign = map[postbox.Dialect]*regexp.Regexp{
	postbox.PostgreSQL: regexp.MustCompile(` postbox_writers `),
	postbox.MySQL:      regexp.MustCompile(` SEQUENCE | FUNCTION | postbox_waiting `),
}

// to finds the role in a statement.
var to = regexp.MustCompile(` TO (\w+)$`)

// as returns a handle of somebody who has these roles, and may do with the table of orders what
// mine says.
func (c *cast) as(t *testing.T, mine, name string, roles ...string) *sql.DB {
	t.Helper()
	var all []string
	for _, role := range roles {
		for _, grant := range grants(t, role) {
			require.Regexp(t, `^\s*$| TO `+role+`$`, grant)
			all = append(all, grant)
		}
	}
	return c.granted(t, mine, name, all)
}

// granted returns a handle of a user who has these rights, as far as the database knows them, and
// may do with the table of orders what mine says.
func (c *cast) granted(t *testing.T, mine, name string, grants []string) *sql.DB {
	t.Helper()
	user := name + c.suffix
	if !c.create(t, user) {
		return c.open(t, user)
	}
	for _, grant := range grants {
		if grant = strings.TrimSpace(grant); grant != "" && !foreign[c.database.Dialect].MatchString(grant) {
			c.database.Exec(t, to.ReplaceAllString(grant, " TO "+user))
		}
	}
	if mine != "" {
		c.database.Exec(t, "GRANT "+mine+" ON orders TO "+user)
	}
	return c.open(t, user)
}

// migrator returns a handle of whoever makes the tables, who may make others too.
func (c *cast) migrator(t *testing.T) *sql.DB {
	t.Helper()
	user := "migrator" + c.suffix
	c.create(t, user)
	for _, grant := range grants(t, "migrator") {
		if grant = strings.TrimSpace(grant); strings.Contains(grant, "SCHEMA") == (c.database.Dialect == postbox.PostgreSQL) && grant != "" {
			place := strings.NewReplacer("SCHEMA public", "SCHEMA "+c.schema(t), " shop.", " "+c.schema(t)+".")
			c.database.Exec(t, to.ReplaceAllString(place.Replace(grant), " TO "+user))
		}
	}
	return c.open(t, user)
}

func (c *cast) schema(t *testing.T) string {
	t.Helper()
	if c.database.Dialect == postbox.MySQL {
		config, err := mysql.ParseDSN(c.database.DSN)
		require.NoError(t, err)
		return config.DBName
	}
	u, err := url.Parse(c.database.DSN)
	require.NoError(t, err)
	return u.Query().Get("search_path")
}

// create makes a user, and returns false where it is there already.
func (c *cast) create(t *testing.T, user string) bool {
	t.Helper()
	if slices.Contains(c.users, user) {
		return false
	}
	c.users = append(c.users, user)
	create, drop := "CREATE USER "+user+" IDENTIFIED BY '"+rolePassword+"'", []string{"DROP USER " + user}
	if c.database.Dialect == postbox.PostgreSQL {
		create = "CREATE ROLE " + user + " LOGIN PASSWORD '" + rolePassword + "'"
		drop = []string{"DROP OWNED BY " + user + " CASCADE", "DROP ROLE " + user}
	}
	c.database.Exec(t, create)
	if c.database.Dialect == postbox.PostgreSQL {
		c.database.Exec(t, "GRANT USAGE ON SCHEMA "+c.schema(t)+" TO "+user)
	}
	t.Cleanup(func() {
		for _, statement := range drop {
			_, err := c.database.DB.Exec(statement) //nolint:noctx // the test's context is over
			if err != nil {
				t.Logf("clear away: %s", err)
			}
		}
	})
	return true
}

func (c *cast) open(t *testing.T, user string) *sql.DB {
	t.Helper()
	theirs := *c.database
	if c.database.Dialect == postbox.MySQL {
		config, err := mysql.ParseDSN(c.database.DSN)
		require.NoError(t, err)
		config.User, config.Passwd = user, rolePassword
		theirs.DSN = config.FormatDSN()
	} else {
		u, err := url.Parse(c.database.DSN)
		require.NoError(t, err)
		u.User = url.UserPassword(user, rolePassword)
		theirs.DSN = u.String()
	}
	return theirs.Open(t)
}

// refused shows that the database does not let a role do this.
func (c *cast) refused(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		_, err := db.ExecContext(t.Context(), statement)
		require.Error(t, err, statement)
		require.True(t, forbidden(err), "%s: %s", statement, err)
	}
}

// forbidden says whether a database refuses for want of rights.
func forbidden(err error) bool {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState() == "42501"
	}
	var failure *mysql.MySQLError
	return errors.As(err, &failure) && slices.Contains([]uint16{1044, 1142, 1143}, failure.Number) // database, table, column
}

const (
	patience = 30 * time.Second
	tick     = 10 * time.Millisecond
)
