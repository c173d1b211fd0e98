package command

import (
	_ "embed"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	postbox "github.com/postbox-go/watermill-postbox"
)

// grantsText has a block for each role. A statement names the tables with the default prefix.
//
//go:embed grants.sql
var grantsText string

// includes are the roles that have the rights of others.
var includes = map[string][]string{
	"producer": {"producer"}, "unique-producer": {"producer", "unique-producer"}, "forwarder": {"forwarder"},
	"consumer": {"consumer"}, "history": {"consumer", "history"}, "worker": {"forwarder", "consumer"}, "receiver": {"receiver"},
	"operator": {"operator"},
}

// grantedName is the name of a table, a sequence or a function in a statement.
var grantedName = regexp.MustCompile(`\bpostbox_(\w+)`)

func (p *program) grantsCommand() *cobra.Command {
	var roles []string
	var to string
	known := slices.Sorted(maps.Keys(includes))
	cmd := &cobra.Command{
		Use: "grants", Short: "Print the rights of a process as SQL",
		Long: `Print the rights of a process as SQL, for an administrator to run.

Give each process a user of its own, with a --role for each thing that it does: ` + strings.Join(known, ", ") + `.
docs/security.md says what each of them may see and do. This needs no connection: the kind of database
is that of the address, or of --dialect. On SQLite there are no rights.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := p.settings.resolve(p.options.LookupEnv)
			if err != nil {
				return err
			}
			if found.database.Dialect != postbox.PostgreSQL && found.database.Dialect != postbox.MySQL {
				return usagef("set --dialect to %s or %s: other databases have no rights to grant", postbox.PostgreSQL, postbox.MySQL)
			}
			if _, err := statementsFor(found.database); err != nil {
				return err
			}
			if len(roles) == 0 || to == "" {
				return usagef("give a --role, one of %s, and --to, the user who gets its rights", strings.Join(known, ", "))
			}
			lines, err := grants(found.database, roles, to)
			if err == nil {
				_, err = fmt.Fprint(cmd.OutOrStdout(), lines)
			}
			return err
		},
	}
	cmd.Flags().StringArrayVar(&roles, "role", nil, "what the process does; may be repeated")
	cmd.Flags().StringVar(&to, "to", "", `user who gets the rights, as it stands in SQL, such as shop or "'shop'@'%'"`)
	return cmd
}

// grants are the statements that give a user the rights of all the roles, each once.
func grants(database postbox.Database, roles []string, to string) (string, error) {
	var lines []string
	if database.Dialect == postbox.PostgreSQL {
		schema := "public"
		if database.Schema != "" {
			schema = `"` + database.Schema + `"`
		}
		lines = append(lines, "GRANT USAGE ON SCHEMA "+schema+" TO "+to+";")
	}
	for _, role := range roles {
		if includes[role] == nil {
			return "", usagef("--role %q: not one of %s", role, strings.Join(slices.Sorted(maps.Keys(includes)), ", "))
		}
		for _, block := range includes[role] {
			_, text, _ := strings.Cut(grantsText, "\n-- "+block+"\n")
			text, _, _ = strings.Cut(text, "\n\n")
			for line := range strings.Lines(text) {
				if hasGrant(database.Dialect, line) {
					lines = append(lines, grant(database, strings.TrimSpace(line), to))
				}
			}
		}
	}
	seen := map[string]bool{}
	lines = slices.DeleteFunc(lines, func(line string) bool {
		again := seen[line]
		seen[line] = true
		return again
	})
	return strings.Join(lines, "\n") + "\n", nil
}

// hasGrant reports whether the database has what a statement is about.
func hasGrant(of postbox.Dialect, line string) bool {
	onlyPostgres := strings.Contains(line, "postbox_waiting") || strings.Contains(line, " ON SEQUENCE ") || strings.Contains(line, " ON FUNCTION ")
	if of == postbox.PostgreSQL {
		return !strings.Contains(line, "postbox_writers")
	}
	return !onlyPostgres && !strings.Contains(line, "xmax")
}

// grant names the tables of the database and the user in a statement.
func grant(database postbox.Database, line, to string) string {
	prefix := database.Prefix
	if prefix == "" {
		prefix = "postbox_"
	}
	if database.Schema != "" {
		prefix = `"` + database.Schema + `".` + prefix
	}
	line = grantedName.ReplaceAllString(line, prefix+"$1")
	return strings.Replace(line, ":role", to, 1)
}
