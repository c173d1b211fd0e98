package command_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// The statements are those of docs/security.md, with which a test does the work of each role.
func TestGrants_are_those_of_the_documents(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/security.md")
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)```sql\n(.*?)```")
	roles := map[string]string{
		"producer": "producer", "producer of unique keys": "unique-producer", "forwarder": "forwarder", "consumer": "consumer",
		"receiver": "receiver", "consumer with a history": "history", "operator": "operator",
	}
	checked := 0
	for _, section := range strings.Split(string(page), "\n### ") {
		title, text, _ := strings.Cut(section, "\n")
		role, found := roles[title]
		if !found {
			continue
		}
		checked++
		both := ""
		for _, dialect := range []postbox.Dialect{postbox.PostgreSQL, postbox.MySQL} {
			printed := execute(t.Context(), command.Options{}, nil, "migrate", "grants", "--dialect", string(dialect), "--role", role, "--to", "x")
			require.Zero(t, printed.code, printed.err)
			both += printed.out
		}
		for line := range strings.Lines(block.FindStringSubmatch(text)[1]) {
			granted := regexp.MustCompile(` TO \w+;`).ReplaceAllString(line, " TO x;")
			require.Contains(t, both, granted, "of %s", role)
			both = strings.ReplaceAll(both, granted, "")
		}
	}
	require.Len(t, roles, checked)
}

// A database takes all of them, for all roles together.
func TestGrants_are_statements_of_the_database(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) *testdb.Database{"postgres": testdb.Postgres, "mariadb": testdb.MySQL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, open(t))
			user, drop := "grants_"+strings.ReplaceAll(postbox.NewMessageID(), "-", "")[8:], []string{}
			if b.database.Dialect == postbox.PostgreSQL {
				b.database.Exec(t, "CREATE ROLE "+user)
				drop = append(drop, "DROP OWNED BY "+user)
				drop = append(drop, "DROP ROLE "+user)
			} else {
				user = "'" + user + "'@'%'"
				b.database.Exec(t, "CREATE USER "+user)
				drop = append(drop, "DROP USER "+user)
			}
			defer func() {
				for _, statement := range drop {
					b.database.Exec(t, statement)
				}
			}()
			out := b.ok("migrate", "grants", "--to", user, "--role", "producer", "--role", "unique-producer", "--role", "worker", "--role", "history", "--role", "receiver", "--role", "operator")
			require.NotContains(t, out, ":role")
			for line := range strings.Lines(out) {
				b.database.Exec(t, line)
			}
			lines := strings.Split(strings.TrimSpace(out), "\n")
			for i, line := range lines {
				require.NotContains(t, lines[i+1:], line, "each stands there once")
			}
		})
	}
}

func TestGrants_say_what_is_missing(t *testing.T) {
	t.Parallel()
	for text, args := range map[string][]string{
		"give a --role, one of consumer, forwarder": {"--dialect", "postgresql"},
		`--role "boss": not one of consumer`:        {"--dialect", "postgresql", "--role", "boss", "--to", "x"},
		"set --dialect to postgresql or mysql":      {"--dialect", "sqlite", "--role", "worker", "--to", "x"},
	} {
		refused := execute(t.Context(), command.Options{}, nil, append([]string{"migrate", "grants"}, args...)...)
		require.NotZero(t, refused.code)
		require.Contains(t, refused.err, text)
	}
}
