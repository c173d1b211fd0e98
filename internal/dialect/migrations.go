package dialect

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

//go:embed migrations/*/*.sql
var migrations embed.FS

// Migration brings the tables from one version to the next.
type Migration struct {
	Version int64
	Name    string // of its file
	Parts   []MigrationPart
	text    string
}

// MigrationPart is a transaction of a migration. Those before the last one can be applied again.
type MigrationPart struct {
	Statements []string
	// Repeat says that it changes some rows at a time, and is to be applied until it changes none.
	Repeat bool
}

// A migration's file is in one part unless it has lines with one of these.
const (
	beginPart  = "-- postbox: commit"
	repeatPart = "-- postbox: commit, then repeat"
)

// movePortion is how many rows a part that is repeated moves at a time: what takes about a tenth of a second.
const movePortion = "5000"

// Migrations returns the migrations of the database in their order, with the names filled in.
func (s *Statements) Migrations() ([]Migration, error) {
	dir := path.Join("migrations", string(s.Kind))
	entries, err := fs.ReadDir(migrations, dir) // in the order of their names
	if err != nil {
		return nil, fmt.Errorf("read migrations of %s: %w", s.Kind, err)
	}
	fill := s.Names.replacer()
	all := make([]Migration, len(entries))
	for i, entry := range entries {
		file, err := fs.ReadFile(migrations, path.Join(dir, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("read migration %s: %w", entry.Name(), err)
		}
		number, _, _ := strings.Cut(entry.Name(), "_")
		version, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("migration %s has no number: %w", entry.Name(), err)
		}
		text := fill.Replace(string(file))
		all[i] = Migration{Version: version, Name: entry.Name(), Parts: parts(strings.ReplaceAll(text, "{portion}", movePortion)), text: text}
	}
	return all, nil
}

// parts cuts the text of a migration into its parts, and each part into its statements: not every driver takes several at a time.
func parts(text string) (parts []MigrationPart) {
	part := MigrationPart{}
	var statement strings.Builder
	for line := range strings.SplitSeq(text, "\n") {
		switch {
		case line == beginPart, line == repeatPart:
			parts = append(parts, part)
			part = MigrationPart{Repeat: line == repeatPart}
		case strings.HasPrefix(line, "--"), strings.TrimSpace(line) == "":
		default:
			statement.WriteString(line + "\n")
			if strings.HasSuffix(line, ";") {
				part.Statements = append(part.Statements, strings.TrimSuffix(statement.String(), ";\n"))
				statement.Reset()
			}
		}
	}
	return append(parts, part)
}

// Text returns the migration as plain SQL, for people who run it by themselves.
func (m Migration) Text() string {
	lines := strings.Split(strings.ReplaceAll(m.text, "{portion}", "ALL"), "\n")
	kept := lines[:0]
	for _, line := range lines {
		if line != beginPart && line != repeatPart {
			kept = append(kept, line)
		}
	}
	return strings.TrimSpace(strings.Join(kept, "\n")) + "\n"
}
