package dialect

import (
	"embed"
	"slices"
	"strings"
	"sync"
)

//go:embed statements/*.sql
var files embed.FS

// textsOf returns the lines of each statement of a kind of database, by its name.
func textsOf(kind Kind) map[string][]string { return texts()[kind] }

var texts = sync.OnceValue(func() map[Kind]map[string][]string {
	all := map[Kind]map[string][]string{}
	for _, kind := range []Kind{PostgreSQL, MySQL, SQLite} {
		file, err := files.ReadFile("statements/" + string(kind) + ".sql")
		if err != nil {
			panic("dialect: " + err.Error()) // it is a part of the program
		}
		all[kind] = map[string][]string{}
		for _, text := range strings.Split(string(file), "\n-- name: ")[1:] {
			lines := strings.Split(strings.TrimSpace(text), "\n")
			all[kind][lines[0]] = lines[1:]
		}
	}
	return all
})

// raw returns a text with :name for each argument, without its comments, and without what stands
// between "-- if" and "-- end" for other conditions than these. It is empty where the database does
// without the statement.
func (s *Statements) raw(name string, conditions ...string) string {
	var kept []string
	left := false
	for _, line := range textsOf(s.Kind)[name] {
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
	made := s.Kind.marked(s.raw(name, conditions...))
	s.made.Store(key, made)
	return made
}

// query returns a statement with its arguments.
func (s *Statements) query(name string, values args) Query { return s.of(name).with(values) }

// has reports whether the database has a statement.
func (s *Statements) has(name string) bool { return textsOf(s.Kind)[name] != nil }
