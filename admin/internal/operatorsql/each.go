package operatorsql

import (
	"slices"
	"strings"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// together is how many spools one statement on MySQL or MariaDB is about, where the text is
// repeated for each.
const together = 25

// ofFew returns the statement for those of some spools that have fewer rows than a limit, on MySQL
// and MariaDB.
func (s *Statements) ofFew(name string, spools []int64, limit int) []dialect.Query {
	if s.Kind != dialect.MySQL {
		return nil
	}
	return []dialect.Query{s.query(name, args{"spools": s.Numbers(spools), "offset": limit - 1})}
}

// ofSpools returns the statements for some spools, whose columns all have the same limit.
func (s *Statements) ofSpools(name string, spools []int64, limit int) (queries []dialect.Query) {
	if s.Kind != dialect.MySQL {
		return []dialect.Query{s.query(name, args{"spools": s.Numbers(spools), "limit": limit})}
	}
	for part := range slices.Chunk(spools, together) {
		var whole dialect.Query
		var each []string
		for _, spool := range part {
			query := s.query(name, args{"spool": spool, "limit": limit})
			each, whole.Args = append(each, query.Text), append(whole.Args, query.Args...)
		}
		whole.Text = strings.Join(each, "\nUNION ALL ")
		queries = append(queries, whole)
	}
	return queries
}
