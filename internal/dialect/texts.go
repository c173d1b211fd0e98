package dialect

import (
	"embed"
	"slices"
	"strings"
	"sync"
)

//go:embed statements/*.sql
var files embed.FS

// Texts are the lines of statements by their names, for each kind of database.
type Texts map[Kind]map[string][]string

var engine = sync.OnceValue(func() Texts { return ReadTexts(files) })

// ReadTexts reads the files statements/postgresql.sql and so on. Each statement begins with a line
// "-- name: " and its name.
func ReadTexts(files embed.FS) Texts {
	texts := Texts{}
	for _, kind := range []Kind{PostgreSQL, MySQL, SQLite} {
		file, err := files.ReadFile("statements/" + string(kind) + ".sql")
		if err != nil {
			panic("dialect: " + err.Error()) // it is a part of the program
		}
		texts[kind] = map[string][]string{}
		unix := strings.ReplaceAll(string(file), "\r\n", "\n")
		for _, text := range strings.Split(unix, "\n-- name: ")[1:] {
			lines := strings.Split(strings.TrimSpace(text), "\n")
			texts[kind][lines[0]] = lines[1:]
		}
	}
	return texts
}

// WithTexts returns the statements of another package, for the same tables.
func (s *Statements) WithTexts(texts Texts) *Statements {
	own := *s
	own.texts, own.made = texts[s.Kind], new(sync.Map)
	return &own
}

// Query returns a statement of [Statements.WithTexts] with its arguments. Conditions choose parts
// of its text, see [Statements.Raw].
func (s *Statements) Query(name string, values map[string]any, conditions ...string) Query {
	return s.of(name, conditions...).with(values)
}

// Raw returns the text of a statement. Each argument is written as :name. Comments are left out. A
// part between "-- if WORD" and "-- end" is left out unless the word is one of the conditions. The
// text is empty if the database has no such statement.
func (s *Statements) Raw(name string, conditions ...string) string {
	var kept []string
	left := false
	for _, line := range s.texts[name] {
		switch condition, found := strings.CutPrefix(line, "-- if "); {
		case found:
			left = !slices.Contains(conditions, condition)
		case line == "-- end":
			left = false
		case !left && !strings.HasPrefix(line, "--"):
			kept = append(kept, line)
		}
	}
	return s.renaming.Replace(strings.TrimSpace(strings.Join(kept, "\n")))
}

// textName names a text that was made.
type textName struct{ name, conditions string }

// of returns a statement with the parts for these conditions.
func (s *Statements) of(name string, conditions ...string) statement {
	key := textName{name, strings.Join(conditions, " ")}
	if made, ok := s.made.Load(key); ok {
		return made.(statement)
	}
	made := s.Kind.marked(s.Raw(name, conditions...))
	s.made.Store(key, made)
	return made
}

// query returns a statement with its arguments.
func (s *Statements) query(name string, values args) Query { return s.of(name).with(values) }

// has reports whether the database has a statement.
func (s *Statements) has(name string) bool { return s.texts[name] != nil }
