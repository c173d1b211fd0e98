package operatorsql

import (
	"cmp"
	"math"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// AuditFilter selects rows of the audit log. The zero value of a field means any, except that Limit
// is required.
type AuditFilter struct {
	Before, Least         int64 // ids, the first exclusive, the second inclusive
	Actor, Action, Target string
	From, Until           int64 // times, the first inclusive, the second exclusive
	Limit                 int
}

// audit sets the statements that read the audit log. Package audit has those that write it.
func (s *Statements) audit() {
	// Walks the primary key backwards. The limit bounds the page. Rows that the filter leaves out
	// are still read. The sums keep databases from reading all rows of a span by the index on the
	// time, and sorting them.
	s.auditRows = s.Named(`
SELECT id, acted_at, actor, action, target, subject, filter, affected, note
FROM {audit}
WHERE id < :before AND id >= :least AND acted_at + 0 >= :from AND acted_at + 0 < :until
  AND ({text :actor} = '' OR actor = :actor)
  AND ({text :action} = '' OR action = :action)
  AND ({text :target} = '' OR target = :target)
ORDER BY id DESC
LIMIT :most`)

	s.auditSearchEnd = s.Named(`
SELECT COUNT(*), COALESCE(MIN(p.id), 0) FROM (SELECT id FROM {audit} WHERE id < :before ORDER BY id DESC LIMIT {unseen :among}) p`)
}

// AuditRows returns the rows that a filter selects, the latest first: id, time, actor, action,
// target, subject, filter, number, note.
func (s *Statements) AuditRows(f AuditFilter) dialect.Query {
	return s.auditRows.With(args{
		"before": f.before(), "least": f.Least, "from": f.From, "until": cmp.Or(f.Until, math.MaxInt64), "actor": f.Actor, "action": f.Action, "target": f.Target, "most": f.Limit,
	})
}

func (f AuditFilter) before() int64 { return cmp.Or(f.Before, math.MaxInt64) }

// AuditSearchEnd returns how many of so many rows there are before that of the filter, and the id
// of the last of these.
func (s *Statements) AuditSearchEnd(f AuditFilter, among int) dialect.Query {
	return s.auditSearchEnd.With(args{"before": f.before(), "among": among})
}
