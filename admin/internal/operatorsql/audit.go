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

// AddToAct adds to the number of an operation that has a row, and replaces its note.
func (s *Statements) AddToAct(r dialect.AuditRow) dialect.Query {
	return s.query("AddToAct", args{"affected": r.Affected, "note": r.Note, "operation": r.Operation})
}

// AuditRows returns the rows that a filter selects, the latest first: id, time, actor, action,
// target, subject, filter, number, note.
func (s *Statements) AuditRows(f AuditFilter) dialect.Query {
	return s.query("AuditRows", args{
		"before": f.before(), "least": f.Least, "from": f.From, "until": cmp.Or(f.Until, math.MaxInt64), "actor": f.Actor, "action": f.Action, "target": f.Target, "most": f.Limit,
	})
}

func (f AuditFilter) before() int64 { return cmp.Or(f.Before, math.MaxInt64) }

// AuditSearchEnd returns how many of so many rows there are before that of the filter, and the id
// of the last of these.
func (s *Statements) AuditSearchEnd(f AuditFilter, among int) dialect.Query {
	return s.query("AuditSearchEnd", args{"before": f.before(), "among": among})
}
