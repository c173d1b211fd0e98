package dialect

import (
	"slices"
	"strings"
)

// Seen is what a process has observed of its database: which servers answered, and the highest id
// that was given to a message.
type Seen struct {
	Servers []string // see [Statements.Fetch]: the incarnations of the database
	Given   int64
}

// RemoveWhere is [Statements.Remove] with a condition. The texts are in postgres_removal.go,
// mysql_removal.go and sqlite.go, and in the function {remove} of PostgreSQL's migration.
//
// The server that executes it must be one that the process has read from. On SQLite, the file must
// have issued at least as many ids as the process has seen. A handler of a queue may have written
// its effect to a database that was lost in a failover. Then the message is not done in the
// database that took over, so it must not be removed there.
func (s *Statements) RemoveWhere(spool int64, refs []Ref, seen *Seen) Query {
	query := s.Remove(spool, refs)
	if seen == nil {
		return query
	}
	switch s.Kind {
	case PostgreSQL:
		query.Args[slices.Index(query.names, "servers")] = seen.list()
	case MySQL:
		query.Text += " AND LOCATE(" + s.ServerIn + ", ?) > 0"
		query.Args = append(query.Args, seen.list())
	case SQLite, anyKind: // a file has no server
		query.Text += " AND " + s.ServerIn + " >= ?"
		query.Args = append(query.Args, seen.Given)
	}
	return query
}

// list separates the servers by bars, and begins and ends with one, so that ServerIn matches whole
// names only.
func (s *Seen) list() string {
	return "|" + strings.Join(slices.Sorted(slices.Values(s.Servers)), "|") + "|"
}
