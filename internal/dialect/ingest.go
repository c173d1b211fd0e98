package dialect

import (
	"bytes"
	"slices"
	"strings"
)

// Ingest holds the statements that store messages under claims, once each. Either Whole does all,
// or, if its text is empty because the database has no such statement, Claim and then
// [Statements.Append] do so in one transaction.
type Ingest struct {
	// Whole claims the keys and appends the row of each key that was not claimed before, in order.
	// It returns the positions, from 1, of the other keys. Its last argument is the spool.
	Whole Query

	// Claim claims the keys. The number of rows that its queries change is the number of new
	// claims. They do not say which claims are new.
	Claim []Query
	// Claimed returns the query for the keys that are already claimed.
	Claimed func() Query
}

// Ingest stores a row under each claim. The claims must differ.
func (s *Statements) Ingest(spool int64, claims [][]byte, rows []Row) Ingest {
	return s.lists.ingest(spool, claims, rows)
}

// ingest claims in the order of the keys. If two transactions claim the same keys, one then waits
// for the other, and there is no deadlock.
func (r repeated) ingest(_ int64, claims [][]byte, _ []Row) Ingest {
	sorted := slices.SortedFunc(slices.Values(claims), bytes.Compare)
	return Ingest{
		Claim:   r.insert(r.claims, len(sorted), func(i int) []any { return []any{sorted[i]} }),
		Claimed: r.claimed(sorted),
	}
}

func (r repeated) claimed(claims [][]byte) func() Query {
	return func() Query {
		args := make([]any, len(claims))
		for i, claim := range claims {
			args[i] = claim
		}
		text := strings.Replace(r.of("IngestClaimed").text, "?", "?"+strings.Repeat(", ?", len(args)-1), 1)
		return Query{Text: text, Args: args, Once: true}
	}
}
