package dialect

import (
	"bytes"
	"slices"
	"strings"
)

// Ingest is how messages are stored under claims, once each: by Whole, or, where the database has no such statement
// and its text is empty, by Claim and Append in one transaction.
type Ingest struct {
	// Whole claims the keys and appends the row of each one that was not claimed before, in their order. It returns the
	// positions, from 1, of the others.
	Whole Query

	// Claim claims the keys. Together its queries change as many rows as there were keys that were not claimed before, and do
	// not tell which.
	Claim []Query
	// Append inserts all the rows, in their order.
	Append []Query
	// Claimed returns those of the keys that are claimed.
	Claimed Query
}

// Ingest stores a row under each claim. No two claims may be the same.
func (s *Statements) Ingest(spool int64, claims [][]byte, rows []Row) Ingest {
	return s.lists.ingest(spool, claims, rows)
}

// claimHead and claimRow claim keys on MySQL and SQLite; a statement that claims one that an open transaction has claimed waits
// for that to end. claimedHead reads by the primary key.
const (
	claimHead   = `{insert ignore} INTO {claims} (claim_key, claimed_at) VALUES `
	claimRow    = `(?, {now})`
	claimedHead = `SELECT claim_key FROM {claims} WHERE claim_key IN (`
)

// ingest claims in the order of the keys: of two transactions that claim the same ones, one then waits for the other
// and never each for the other.
func (r repeated) ingest(spool int64, claims [][]byte, rows []Row) Ingest {
	sorted := slices.SortedFunc(slices.Values(claims), bytes.Compare)
	args := make([]any, len(sorted))
	for i, claim := range sorted {
		args[i] = claim
	}
	return Ingest{
		Claim:   r.insert(r.claimHead, r.claimRow, r.claimRow, len(args), func(i int) []any { return args[i : i+1] }),
		Append:  r.append(spool, rows),
		Claimed: Query{Text: r.claimedHead + strings.Repeat("?, ", len(args)-1) + "?)", Args: args, Once: true},
	}
}
