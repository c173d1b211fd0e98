package dialect

import (
	"fmt"
	"regexp"
	"strings"
)

// DefaultPrefix starts the table names unless the user says otherwise.
const DefaultPrefix = "postbox_"

// validName matches names that need no quoting on any of the databases. They leave room for the
// longest of Postbox's endings within the 63 bytes that PostgreSQL allows.
var validName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,31}$`)

// tables are the endings of the table names.
var tables = []string{
	"spools", "lanes", "members", "limits", "messages", "waiting", "dead_letters", "failures", "chores", "claims", "sources", "pauses", "topic_pauses", "history",
	"deployment", "writers", "identity", "audit", "unique_keys", "receipts", "minutes",
}

// Names says where the tables are, and to which deployment they belong.
type Names struct {
	Schema     string
	Prefix     string
	Deployment string
}

// NewNames checks a schema and a prefix, which may be empty for their defaults, and the name of a
// deployment, if there is one.
func NewNames(schema, prefix, deployment string) (Names, error) {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	if !validName.MatchString(prefix) {
		return Names{}, fmt.Errorf("table prefix %.60q: use at most 32 letters, digits and underscores, not starting with a digit", prefix)
	}
	if schema != "" && !validName.MatchString(schema) {
		return Names{}, fmt.Errorf("schema %.60q: use at most 32 letters, digits and underscores, not starting with a digit", schema)
	}
	if err := checkDeploymentName(deployment); err != nil {
		return Names{}, err
	}
	return Names{Schema: schema, Prefix: prefix, Deployment: deployment}, nil
}

// CheckSchema returns an error if the tables of this kind of database cannot be in a schema.
func (k Kind) CheckSchema(schema string) error {
	switch {
	case schema == "":
		return nil
	case k == MySQL:
		return fmt.Errorf("Schema %.60q: MySQL and MariaDB have no schemas inside a database: leave it empty, and use Prefix", schema)
	case k == SQLite:
		return fmt.Errorf("Schema %.60q: SQLite has no schemas: leave it empty, and use Prefix", schema)
	default:
		return nil
	}
}

// Table returns the full name of the table with that ending.
func (n Names) Table(ending string) string {
	if n.Schema == "" {
		return n.Prefix + ending
	}
	return `"` + n.Schema + `".` + n.Prefix + ending // the name may be an SQL keyword, or have capitals
}

// replacer replaces {table} by table names, {remove} and the like by those of PostgreSQL's
// functions, {prefix} by the prefix of index names, and the database's additional pairs.
func (n Names) replacer(extra ...string) *strings.Replacer {
	pairs := append([]string{"{prefix}", n.Prefix, "{remove}", n.Table("remove"), "{due}", n.Table("due"), "{stuck}", n.Table("stuck")}, extra...)
	for _, ending := range tables {
		pairs = append(pairs, "{"+ending+"}", n.Table(ending))
	}
	return strings.NewReplacer(pairs...)
}

// Fill puts the names of the tables into a text of a package of its own.
func (s *Statements) Fill(text string) string { return s.Names.replacer().Replace(text) }

// renaming replaces the default names of tables and functions by those of the user.
func (n Names) renaming() *strings.Replacer {
	var pairs []string
	for _, ending := range append([]string{"version", "remove", "due", "stuck"}, tables...) {
		pairs = append(pairs, DefaultPrefix+ending, n.Table(ending))
	}
	return strings.NewReplacer(pairs...)
}
