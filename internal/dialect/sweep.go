package dialect

import "github.com/lib/pq"

// SweepParams are the parameters of one step of a sweep, which looks for messages that a drainer's
// reads no longer find.
type SweepParams struct {
	Spool    int64
	Ranges   []Range
	Known    []int64  // ids that the caller has already
	Excluded []string // topics that are not wanted now
	// Unordered and PausedKeys are those of [FetchParams].
	Unordered, PausedKeys bool
	Held                  []int64 // that of [FetchParams]
}

// Range is the part of a lane that a step searches: its ready messages with an id above After and
// up to UpTo. So the cost of the step depends only on the ids in between, however many index
// entries of deleted messages there are.
type Range struct {
	Lane        int
	After, UpTo int64
}

// Sweep returns the lane of each range, and the id of its first message that may be handled now, or
// NULL.
func (s *Statements) Sweep(p SweepParams) Query { return s.lists.sweep(p) }

func (p postgres) sweep(s SweepParams) Query {
	lanes, afters, upTos := rangeArrays(s.Ranges)
	return p.query("Sweep", args{
		"spool": s.Spool, "lanes": lanes, "after": afters, "up_to": upTos,
		"known": append(pq.Int64Array{}, s.Known...), "excluded": append(pq.StringArray{}, s.Excluded...), "held": append(pq.Int64Array{}, s.Held...),
		"unordered": s.Unordered, "paused": s.PausedKeys,
	})
}

func rangeArrays(ranges []Range) (lanes, afters, upTos pq.Int64Array) {
	n := len(ranges)
	lanes, afters, upTos = make(pq.Int64Array, n), make(pq.Int64Array, n), make(pq.Int64Array, n)
	for i, r := range ranges {
		lanes[i], afters[i], upTos[i] = int64(r.Lane), r.After, r.UpTo
	}
	return lanes, afters, upTos
}

func (r repeated) sweep(s SweepParams) Query {
	ranges := make([][3]int64, len(s.Ranges))
	for i, r := range s.Ranges {
		ranges[i] = [3]int64{int64(r.Lane), r.After, r.UpTo}
	}
	return r.query("Sweep", args{
		"spool": s.Spool, "ranges": List(ranges), "known": List(s.Known), "excluded": List(s.Excluded), "held": List(s.Held),
		"unordered": s.Unordered, "paused": s.PausedKeys,
	})
}
