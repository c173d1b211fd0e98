package sources

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// snapshot is the result of PostgreSQL's pg_current_snapshot: transactions below next had begun,
// and running lists those of them that had not ended, in order.
type snapshot struct {
	next    int64
	running []int64
}

// parseSnapshot reads "xmin:xmax:xid,xid,…". An empty text, from a database without such a thing,
// is nil.
func parseSnapshot(text string) (*snapshot, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // no snapshot is an answer
	}
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return nil, fmt.Errorf("parse snapshot %q: three parts expected", text)
	}
	next, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return nil, fmt.Errorf("parse snapshot %q: %w", text, err)
	}
	s := &snapshot{next: next}
	for word := range strings.SplitSeq(parts[2], ",") {
		if word == "" {
			continue
		}
		id, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("parse snapshot %q: %w", text, err)
		}
		s.running = append(s.running, id)
	}
	slices.Sort(s.running)
	return s, nil
}

func (s *snapshot) runs(transaction int64) bool {
	_, found := slices.BinarySearch(s.running, transaction)
	return found
}

// position says how far a source was taken over. Everything up to after is gone, except rows of the
// transactions in late, which were running when the table was read. Their rows become visible with
// their commit, below rows that are gone already. Each of these transactions has the offset up to
// which its own rows are gone.
//
// So no message waits for a running transaction, and no read goes over the index entries of deleted
// rows again. PostgreSQL cannot remove such entries while an old transaction runs.
//
// The table's rows carry the transaction that wrote them; on MySQL they do not. There, after is the
// offset up to which the old daemon has forwarded, and each read begins there: InnoDB removes
// deleted index entries within moments.
type position struct {
	After rowID
	Late  []rowID
}

func compareRows(a, b rowID) int {
	if a.Transaction != b.Transaction {
		return cmp.Compare(a.Transaction, b.Transaction)
	}
	return cmp.Compare(a.Offset, b.Offset)
}

// raise returns the position where everything up to floor is known to be gone, late rows included.
func (p position) raise(floor rowID) position {
	if compareRows(p.After, floor) < 0 {
		p.After = floor
	}
	var late []rowID
	for _, l := range p.Late {
		if l.Transaction > floor.Transaction {
			late = append(late, l)
		} else if l.Transaction == floor.Transaction {
			late = append(late, rowID{Transaction: l.Transaction, Offset: max(l.Offset, floor.Offset)})
		}
	}
	p.Late = late
	return p
}

// lowest is the row up to which everything is gone and no row can appear any more: the next process
// may start there.
func (p position) lowest() rowID {
	if len(p.Late) > 0 {
		return p.Late[0]
	}
	return p.After
}

// advance returns the position after a read from p. The read took the rows up to last. If it was
// cut, it took nothing beyond last; otherwise it took all rows. The snapshot is one from before the
// read, so the read saw all rows of the transactions that had ended by then.
func (p position) advance(s *snapshot, last *rowID, cut bool) position {
	if s == nil {
		return p
	}
	if cut && compareRows(*last, p.After) <= 0 {
		return p.advanceLate(s, *last)
	}
	end := rowID{Transaction: s.next, Offset: -1}
	if cut && compareRows(*last, end) < 0 {
		end = *last
	}
	next := position{After: p.After}
	if compareRows(next.After, end) < 0 {
		next.After = end
	}
	for _, id := range s.running {
		if id < next.After.Transaction {
			next.Late = append(next.Late, rowID{Transaction: id, Offset: -1})
		}
	}
	return next
}

// advanceLate is advance for a read that was cut among late rows.
func (p position) advanceLate(s *snapshot, last rowID) position {
	next := position{After: p.After}
	for _, l := range p.Late {
		switch {
		case l.Transaction == last.Transaction:
			next.Late = append(next.Late, last)
		case l.Transaction > last.Transaction || s.runs(l.Transaction):
			next.Late = append(next.Late, l)
		}
	}
	return next
}
