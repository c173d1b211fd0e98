package spool

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// MaxIngestBytes limits the messages that one [Spool.Ingest] should take, if it takes more than
// one.
const MaxIngestBytes = MaxAppendBytes

// Arrival is a message to store under a claim, once.
type Arrival struct {
	// Claim identifies the message.
	Claim []byte
	row   dialect.Row
}

// NewArrival returns a message in the form that [Spool.Ingest] takes. It keeps the claim and the
// draft's payload.
func NewArrival(claim []byte, draft Draft) (Arrival, error) {
	row, err := newRow(draft)
	return Arrival{Claim: claim, row: row}, err
}

// Size returns the number of bytes that count for [MaxIngestBytes].
func (a Arrival) Size() int { return len(a.row.Payload) + len(a.row.Metadata) }

// KeyHash returns the hash of the ordering key, nil without one.
func (a Arrival) KeyHash() *int64 { return a.row.KeyHash }

// Ingest stores messages and claims them, all in one commit, which has ended when Ingest returns.
// It takes at most MaxAppend messages, whose claims must differ. It returns the claims that existed
// before, whose messages it left out. After a conflict with another transaction it runs again.
//
// After an error nothing was stored, unless the answer to the commit was lost. In that case a
// second call shows what was stored.
func (s *Spool) Ingest(ctx context.Context, db *sql.DB, prepared *Prepared, arrivals []Arrival) (known map[string]bool, err error) {
	id, err := s.Open(ctx, db)
	if err != nil {
		return nil, err
	}
	known = map[string]bool{}
	if whole := s.Statements.Ingest(id, claimsOf(arrivals), s.rows(arrivals)).Whole; whole.Text != "" {
		err = s.ingestWhole(ctx, db, prepared, whole, arrivals, known)
	} else {
		err = s.ingestInParts(ctx, db, prepared, arrivals, known)
	}
	if err != nil {
		return nil, Wrap(fmt.Sprintf("append to spool %q", s.name), err)
	}
	return known, nil
}

func claimsOf(arrivals []Arrival) [][]byte {
	claims := make([][]byte, len(arrivals))
	for i, a := range arrivals {
		claims[i] = a.Claim
	}
	return claims
}

func (s *Spool) rows(arrivals []Arrival) []dialect.Row {
	rows := make([]dialect.Row, len(arrivals))
	for i, a := range arrivals {
		rows[i] = a.row
		rows[i].Lane = s.laneOf(a.row.KeyHash)
	}
	return rows
}

// ingestWhole runs the single statement, which commits by itself.
func (s *Spool) ingestWhole(
	ctx context.Context, db *sql.DB, prepared *Prepared, query dialect.Query, arrivals []Arrival, known map[string]bool,
) error {
	var positions []int
	err := UntilNoConflict(Conflicts(s.Statements.Kind), func() error {
		positions = nil
		return prepared.Each(ctx, db, query, func(scan Scan) error {
			var position int
			err := scan(&position)
			positions = append(positions, position)
			return err
		})
	})
	if err != nil { // the commit is certain only after the last row
		return err
	}
	for _, position := range positions {
		known[string(arrivals[position-1].Claim)] = true
	}
	return nil
}

// errClaimed rolls back a transaction in which not all claims were new.
var errClaimed = errors.New("some of the messages were stored before")

// ingestInParts claims and appends in a transaction, on the assumption that all claims are new. If
// some are not, the database does not say which. Then the transaction is rolled back, and tried
// again without the claims that exist by then.
func (s *Spool) ingestInParts(ctx context.Context, db *sql.DB, prepared *Prepared, arrivals []Arrival, known map[string]bool) error {
	for rest := slices.Clone(arrivals); len(rest) > 0; {
		ingest := s.Statements.Ingest(0, claimsOf(rest), nil)
		var claimed int64
		err := InTx(ctx, db, s.Statements, func(tx *sql.Tx) (err error) {
			claimed, err = execAll(ctx, tx, prepared, ingest.Claim)
			if err == nil && claimed < int64(len(rest)) {
				err = errClaimed
			}
			if err != nil {
				return err
			}
			into, err := s.OpenIn(ctx, tx)
			if err != nil {
				return err
			}
			_, err = execAll(ctx, tx, prepared, s.Statements.Append(into, s.rows(rest)))
			return err
		})
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, errClaimed):
			return err
		case claimed == 0: // then all of the claims exist
			for _, a := range rest {
				known[string(a.Claim)] = true
			}
			return nil
		}
		if err := selectClaims(ctx, db, ingest.Claimed(), known); err != nil {
			return err
		}
		rest = slices.DeleteFunc(rest, func(a Arrival) bool { return known[string(a.Claim)] })
	}
	return nil
}

// execAll executes all queries, and returns the number of rows they changed.
func execAll(ctx context.Context, tx *sql.Tx, prepared *Prepared, queries []dialect.Query) (changed int64, err error) {
	for _, query := range queries {
		n, err := ExecPrepared(ctx, tx, prepared, query)
		if err != nil {
			return 0, err
		}
		changed += n
	}
	return changed, nil
}

// ExecPrepared executes a query in a transaction, with a prepared statement if it is already
// prepared.
func ExecPrepared(ctx context.Context, tx *sql.Tx, prepared *Prepared, query dialect.Query) (int64, error) {
	return Affected(prepared.InTx(ctx, tx, query))
}

// selectClaims adds the claims that a query selects.
func selectClaims(ctx context.Context, db *sql.DB, query dialect.Query, known map[string]bool) error {
	return Each(ctx, db, query, func(scan Scan) error {
		var claim []byte
		err := scan(&claim)
		known[string(claim)] = true
		return err
	})
}
