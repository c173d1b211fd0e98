package dialect

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"testing/fstest"
)

//go:embed migrations/*/*.sql
var migrations embed.FS

// Migrations returns the migration files of the database with the names filled in, as goose reads
// them. Each begins as its transaction needs it.
func (s *Statements) Migrations() (fs.FS, error) {
	return s.migrations(func(number, text string) string {
		if s.migrateBegin == nil {
			return text
		}
		return strings.Replace(text, gooseUp, gooseUp+"\n"+s.migrateBegin(strings.TrimLeft(number, "0")), 1)
	})
}

// PlainMigrations is [Statements.Migrations] for users who run the migrations themselves.
func (s *Statements) PlainMigrations() (fs.FS, error) {
	return s.migrations(func(_, text string) string { return text })
}

// NoteTable returns the statements that make the table of versions if it is not there, for users
// who run the migrations themselves. Version 0 stands for the table itself.
func (s *Statements) NoteTable() string {
	return strings.TrimSpace(s.CreateVersion) + ";\n" + s.NoteVersion(0)
}

// NoteVersion returns the statement that notes in the table of versions that a migration has run,
// unless that is noted.
func (s *Statements) NoteVersion(version int64) string {
	return fmt.Sprintf("INSERT INTO %[1]s (version_id, is_applied)\nSELECT %[2]d, TRUE FROM (SELECT COUNT(*) AS n FROM %[1]s WHERE version_id = %[2]d) AS noted WHERE n = 0;\n",
		s.VersionTable, version)
}

// gooseUp is the line that begins a migration.
const gooseUp = "-- +goose Up"

func (s *Statements) migrations(change func(number, text string) string) (fs.FS, error) {
	dir := path.Join("migrations", string(s.Kind))
	entries, err := fs.ReadDir(migrations, dir)
	if err != nil {
		return nil, fmt.Errorf("read migrations of %s: %w", s.Kind, err)
	}
	fill := s.Names.replacer()
	filled := fstest.MapFS{}
	for _, entry := range entries {
		text, err := fs.ReadFile(migrations, path.Join(dir, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("read migration %s: %w", entry.Name(), err)
		}
		number, _, _ := strings.Cut(entry.Name(), "_")
		filled[entry.Name()] = &fstest.MapFile{Data: []byte(change(number, fill.Replace(string(text))))}
	}
	return filled, nil
}

// Functions returns the statements that make the functions of the migrations anew, one process at a
// time. Their bodies name the tables, so they do not follow when a schema is renamed or copied.
func (s *Statements) Functions() (string, error) {
	files, err := s.PlainMigrations()
	if err != nil {
		return "", err
	}
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return "", err
	}
	script := []string{"SELECT pg_advisory_xact_lock(hashtext('" + s.Names.Table("remove") + "'));\n"}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return "", err
		}
		for _, begun := range strings.Split(string(text), "-- +goose StatementBegin\n")[1:] {
			function, _, _ := strings.Cut(begun, "-- +goose StatementEnd")
			script = append(script, function)
		}
	}
	return strings.Join(script, ""), nil
}

// MigrationText removes the annotations for goose from a migration, so that plain SQL remains.
func MigrationText(file string) string {
	lines := strings.Split(file, "\n")
	kept := lines[:0]
	for _, line := range lines {
		if !strings.HasPrefix(line, "-- +goose") {
			kept = append(kept, line)
		}
	}
	return strings.TrimSpace(strings.Join(kept, "\n")) + "\n"
}
