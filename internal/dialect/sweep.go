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

// postgresSweep is the part of a fetch that reads ready messages, with an upper bound. It is
// planned once, as a fetch is.
var postgresSweep = stuck + `
SELECT c.lane, (
	SELECT m.id
	FROM ONLY {messages} m
	WHERE m.spool = (SELECT :spool::integer) AND m.state = 0 AND m.lane = c.lane AND m.id > c.after AND m.id <= c.up_to
	  AND m.id NOT IN (SELECT unnest(:known::bigint[])) AND m.topic NOT IN (SELECT unnest(:excluded::text[]))
	  AND ` + anyTurn(calm) + `
	ORDER BY m.id LIMIT 1) AS id
FROM unnest((SELECT :lanes::smallint[]), (SELECT :after::bigint[]), (SELECT :up_to::bigint[])) AS c(lane, after, up_to)`

func (p postgres) sweep(s SweepParams) Query {
	lanes, afters, upTos := rangeArrays(s.Ranges)
	return p.swept.with(args{
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

// repeatedSweep takes the ranges as a list of lane, after and up to. Its inner query is that of a
// fetch, with an upper bound.
var repeatedSweep = `
SELECT {lane}, (
	SELECT m.id FROM {messages} m {by ready}
	WHERE m.spool = :spool AND m.state = 0 AND m.lane = {lane} AND m.id > {after} AND m.id <= {up to}
	  AND m.id NOT IN ({numbers}) AND m.topic NOT IN ({words})
	  AND ` + anyTurn(Unblocked) + `
	ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1) AS id
FROM {ranges} c`

func (r repeated) sweep(s SweepParams) Query {
	ranges := make([][3]int64, len(s.Ranges))
	for i, r := range s.Ranges {
		ranges[i] = [3]int64{int64(r.Lane), r.After, r.UpTo}
	}
	return r.swept.with(args{
		"spool": s.Spool, "ranges": List(ranges), "known": List(s.Known), "excluded": List(s.Excluded), "held": List(s.Held),
		"unordered": s.Unordered, "paused": s.PausedKeys,
	})
}
