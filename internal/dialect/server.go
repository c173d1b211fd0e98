package dialect

import (
	"fmt"
	"slices"
	"strings"
)

// Seen is what a process has seen of its database: which servers answered, and the highest id that was given to a message.
type Seen struct {
	Servers []string // see [Statements.Fetch]: the incarnations of the database
	Given   int64
}

// RemoveWhere deletes what [Statements.Remove] does, on a server that the process has seen, and that has given as many ids. A handler of a queue may have
// written its effect to the database that was there before a failover: then the message is not done in the one that is there now.
func (s *Statements) RemoveWhere(spool int64, refs []Ref, seen *Seen) Query {
	query := s.Remove(spool, refs)
	if seen == nil {
		return query
	}
	switch s.Kind {
	case PostgreSQL:
		query.Text += fmt.Sprintf(" AND strpos($%d::text, %s) > 0", len(query.Args)+1, s.ServerIn)
		query.Args = append(query.Args, seen.list())
	case MySQL:
		query.Text += " AND LOCATE(" + s.ServerIn + ", ?) > 0"
		query.Args = append(query.Args, seen.list())
	case SQLite, anyKind: // a file has no server
		query.Text += " AND " + s.ServerIn + " >= ?"
		query.Args = append(query.Args, seen.Given)
	}
	return query
}

// list writes the servers as ServerIn is written, one after the other.
func (s *Seen) list() string {
	return "|" + strings.Join(slices.Sorted(slices.Values(s.Servers)), "|") + "|"
}
