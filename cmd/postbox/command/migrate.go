package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/pressly/goose/v3"
	"github.com/spf13/cobra"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	tables "github.com/postbox-go/watermill-postbox/internal/versions"
)

func (p *program) migrateCommand() *cobra.Command {
	return group("migrate", "Create and update the tables", `Create and update the tables.

docs/upgrade.md says in which order to bring out a new version, what migrations
lock, and how to go back. CHANGELOG.md says what to stop before a migration.`,
		p.migrateUpCommand(), p.migrateStatusCommand(), p.migrateSQLCommand(), p.grantsCommand())
}

func (p *program) migrateUpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "up", Short: "Run the migrations that are missing",
		Long: `Run the migrations that are missing.

Several processes may do this at once: one runs each migration, and the others
wait. With --deployment the name is stored with the tables. If there are tables
without a name, that needs a confirmation: processes whose configuration does not
have the name fail when they start the next time. On SQLite the file is made if
there is none.`,
		Args: arguments(cobra.NoArgs),
		RunE: p.with(creating, func(s *session, _ []string) error {
			before, err := s.versions(s.cmd.Context())
			if err != nil {
				return err
			}
			if err := s.naming(s.cmd.Context(), len(before.applied) > 0); err != nil {
				return err
			}
			s.progress("Migrating %s.", s.where())
			if err := postbox.Migrate(s.cmd.Context(), s.database); err != nil {
				return err
			}
			after, err := s.versions(s.cmd.Context())
			if err != nil {
				return err
			}
			name, err := s.deployment(s.cmd.Context())
			if err != nil {
				return err
			}
			record := migratedRecord{Before: before.newest(), After: after.newest(), Ran: len(after.applied) - len(before.applied), Deployment: name}
			text := fmt.Sprintf("%s run, from version %d to version %d.\n", count(record.Ran, "migration"), record.Before, record.After)
			if name != "" {
				text += fmt.Sprintf("The tables are those of the deployment %q.\n", name)
			}
			return s.one(record, text)
		}),
	}
}

type migratedRecord struct {
	Before int64 `json:"before"`
	After  int64 `json:"after"`
	Ran    int   `json:"ran"`
	// Deployment is the name that is stored with the tables.
	Deployment string `json:"deployment,omitempty"`
}

// deployment is the name that is stored with the tables, or "".
func (s *session) deployment(ctx context.Context) (string, error) {
	var stored string
	err := s.db.QueryRowContext(ctx, s.statements.Deployment).Scan(&stored)
	if dialect.LacksTable(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the deployment of the tables: %w", err)
	}
	return stored, nil
}

// naming asks before tables that are there get a name, and refuses those of another deployment
// before anything is changed.
func (s *session) naming(ctx context.Context, exist bool) error {
	if s.database.Deployment == "" || !exist {
		return nil
	}
	stored, err := s.deployment(ctx)
	if err != nil {
		return err
	}
	if stored != "" {
		return s.belongs(ctx)
	}
	return s.confirm(fmt.Sprintf("Name the tables, which exist and have no name, %q? From then on each process without this name in its configuration fails when it starts.",
		s.database.Deployment))
}

func (p *program) migrateStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "List the migrations, and say which are missing",
		Long: `List the migrations, and say which are missing.

The exit code is 3 if a migration is missing, or if the tables are newer than
this program.`,
		Args: arguments(cobra.NoArgs),
		RunE: p.onEach(inspecting, func(s *session, _ []string) error {
			found, err := s.versions(s.cmd.Context())
			if err != nil {
				return err
			}
			list := s.list("VERSION", "MIGRATION", "STATUS")
			for _, m := range found.all() {
				if err := list.add(m, number(m.Version), cell(m.Name), m.Status); err != nil {
					return err
				}
			}
			return errors.Join(list.end(), found.problem())
		}),
	}
}

func (p *program) migrateSQLCommand() *cobra.Command {
	var from int64
	cmd := &cobra.Command{
		Use: "sql", Short: "Print the migrations as SQL, for another migration tool",
		Long: `Print the migrations as SQL, for another migration tool.

This needs no connection: the kind of database is that of the address, or of
--dialect.

The SQL also notes each migration in the table of versions, where "migrate up",
"migrate status" and doctor find it.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := p.settings.resolve(p.options.LookupEnv)
			if err != nil {
				return err
			}
			if found.database.Dialect == "" {
				return usagef("the kind of database is unknown: set --dialect to %s, %s or %s", postbox.PostgreSQL, postbox.MySQL, postbox.SQLite)
			}
			if _, err := statementsFor(found.database); err != nil {
				return err
			}
			return postbox.WriteMigrations(cmd.OutOrStdout(), found.database, from)
		},
	}
	cmd.Flags().Int64Var(&from, "from", 0, "print only the migrations after this version")
	return cmd
}

// versions are the migrations of this program, and those that have run.
type versions struct {
	known   map[int64]string // version → name
	applied []int64          // ascending
}

// The states of a migration.
const (
	migrationApplied = "applied"
	migrationMissing = "missing"
	// migrationUnknown is one that has run and that this program does not have.
	migrationUnknown = "unknown"
)

type migrationRecord struct {
	Version int64  `json:"version"`
	Name    string `json:"name,omitempty"`
	Status  string `json:"status"`
}

// knownVersions returns the names of the migrations that this program has, by their versions.
func (s *session) knownVersions() (map[int64]string, error) {
	files, err := s.statements.PlainMigrations()
	if err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return nil, err
	}
	known := map[int64]string{}
	for _, entry := range entries {
		version, err := goose.NumericComponent(entry.Name())
		if err != nil {
			return nil, err
		}
		_, name, _ := strings.Cut(strings.TrimSuffix(entry.Name(), ".sql"), "_")
		known[version] = name
	}
	return known, nil
}

func (s *session) versions(ctx context.Context) (versions, error) {
	known, err := s.knownVersions()
	found := versions{known: known}
	if err != nil {
		return found, err
	}
	store, err := tables.Store(s.statements)
	if err != nil {
		return found, err
	}
	applied, err := store.ListMigrations(ctx, s.db)
	if err != nil && !dialect.LacksTable(err) {
		return found, fmt.Errorf("read the version of the tables: %w", dialect.HideAddress(err))
	}
	for _, migration := range applied {
		if migration.IsApplied && migration.Version > 0 { // 0 is the table of versions itself
			found.applied = append(found.applied, migration.Version)
		}
	}
	slices.Sort(found.applied)
	return found, nil
}

func (v versions) newest() int64 {
	if len(v.applied) == 0 {
		return 0
	}
	return v.applied[len(v.applied)-1]
}

// all returns the migrations, in order.
func (v versions) all() []migrationRecord {
	var all []migrationRecord
	for version, name := range v.known {
		status := migrationMissing
		if slices.Contains(v.applied, version) {
			status = migrationApplied
		}
		all = append(all, migrationRecord{version, name, status})
	}
	for _, version := range v.applied {
		if _, ok := v.known[version]; !ok {
			all = append(all, migrationRecord{Version: version, Status: migrationUnknown})
		}
	}
	slices.SortFunc(all, func(a, b migrationRecord) int { return int(a.Version - b.Version) })
	return all
}

// count returns how many migrations have a status.
func (v versions) count(status string) int {
	n := 0
	for _, m := range v.all() {
		if m.Status == status {
			n++
		}
	}
	return n
}

// problem says what is wrong with the version of the tables.
func (v versions) problem() error {
	if unknown := v.count(migrationUnknown); unknown > 0 {
		return foundf("the tables are newer than this program, which does not know %s: use a newer version of postbox", count(unknown, "migration"))
	}
	if missing := v.count(migrationMissing); missing > 0 {
		return foundf("%s missing: run \"postbox migrate up\"", are(missing, "migration"))
	}
	return nil
}
