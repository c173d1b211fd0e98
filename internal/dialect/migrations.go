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

// Migrations returns the migration files of the database with the names filled in, as goose reads them.
func (s *Statements) Migrations() (fs.FS, error) {
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
		filled[entry.Name()] = &fstest.MapFile{Data: []byte(fill.Replace(string(text)))}
	}
	return filled, nil
}

// MigrationText takes the notes for goose out of a migration, so that what remains is plain SQL.
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
