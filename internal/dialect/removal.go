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

// RemoveWhere is [Statements.Remove] with a condition.
//
// The server that executes it must be one that the process has read from. On SQLite, the file must
// have issued at least as many ids as the process has seen. A handler of a queue may have written
// its effect to a database that was lost in a failover. Then the message is not done in the
// database that took over, so it must not be removed there.
func (s *Statements) RemoveWhere(spool int64, refs []Ref, seen *Seen) Query {
	return s.lists.remove(spool, refs, seen)
}

// list separates the servers by bars, and begins and ends with one, so that ServerIn matches whole
// names only.
func (s *Seen) list() string {
	return "|" + strings.Join(slices.Sorted(slices.Values(s.Servers)), "|") + "|"
}

// remove of one message has a text of its own, with less work for the server.
func (p postgres) remove(spool int64, refs []Ref, seen *Seen) Query {
	var values args
	text := "Remove"
	if len(refs) == 1 && wereReady(refs) {
		text, values = "RemoveOne", refs[0].args(spool)
	} else {
		values = p.refs(spool, refs)
	}
	values["servers"] = nil
	if seen != nil {
		values["servers"] = seen.list()
	}
	return p.query(text, values)
}

func (m mysql) remove(spool int64, refs []Ref, seen *Seen) Query {
	var values args
	text := "Remove"
	if len(refs) == 1 {
		text, values = "RemoveOne", refs[0].args(spool)
	} else {
		values = m.refs(spool, refs)
	}
	if seen == nil {
		return m.query(text, values)
	}
	values["servers"] = seen.list()
	return m.of(text, "seen").with(values)
}

// remove asks for no server, since a file has none.
func (s sqlite) remove(spool int64, refs []Ref, seen *Seen) Query {
	values := s.refs(spool, refs)
	if seen == nil {
		return s.query("Remove", values)
	}
	values["given"] = seen.Given
	return s.of("Remove", "seen").with(values)
}

func (r Ref) args(spool int64) args {
	return args{"spool": spool, "lane": r.Lane, "id": r.ID, "created_at": r.CreatedAt, "token": r.Token}
}
