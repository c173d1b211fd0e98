package operate

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

const (
	// maxGrouped is how many dead letters [Letters.Groups] puts into groups: some 5 MB.
	maxGrouped = 10_000
	// maxLooked is how many it looks at to find them.
	maxLooked = 20_000
)

// Kin is what the dead letters of a group have in common.
type Kin struct {
	Spool    string
	Consumer string
	Topic    string
	Shape    string // of the error
}

// Group is a number of dead letters that have failed in the same way.
type Group struct {
	Kin
	Count       int
	First, Last time.Time // the deaths
	Example     int64     // id of the latest letter
}

// Groups returns the groups of the newest letters that the filter selects, the largest first, and the number of letters in them. If it is
// capped, there may be more letters.
func (l *Letters) Groups(ctx context.Context, filter dialect.DeadLetterFilter) (groups []Group, letters int, capped bool, err error) {
	var before int64
	query := l.statements.LetterBehind(maxLooked)
	err = l.db.QueryRowContext(ctx, query.Text, query.Args...).Scan(&before)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, 0, false, spool.Wrap("group dead letters", err)
	}
	if capped = before > filter.After; capped {
		filter.After = before
	}
	filter.Limit = maxGrouped + 1
	query = l.statements.DeadLetterErrors(filter)
	rows, err := l.db.QueryContext(ctx, query.Text, query.Args...)
	if err != nil {
		return nil, 0, false, spool.Wrap("group dead letters", err)
	}
	defer func() { _ = rows.Close() }()
	found, looked := map[Kin]*Group{}, 0
	for rows.Next() {
		if looked++; looked > maxGrouped {
			capped = true
			break
		}
		var kin Kin
		var id, died int64
		var text string
		if err := rows.Scan(&id, &died, &kin.Spool, &kin.Consumer, &kin.Topic, &text); err != nil {
			return nil, 0, false, spool.Wrap("group dead letters", err)
		}
		kin.Shape = shapeOf(text)
		if filter.Shape != "" && filter.Shape != kin.Shape {
			continue
		}
		letters++
		add(found, kin, id, time.UnixMicro(died))
	}
	if err := rows.Err(); err != nil {
		return nil, 0, false, spool.Wrap("group dead letters", err)
	}
	return sorted(found), letters, capped, nil
}

// add adds a letter to its group. Letters come with the latest first.
func add(groups map[Kin]*Group, kin Kin, id int64, died time.Time) {
	g := groups[kin]
	if g == nil {
		g = &Group{Kin: kin, First: died, Last: died, Example: id}
		groups[kin] = g
	}
	g.Count++
	if died.Before(g.First) {
		g.First = died
	}
	if died.After(g.Last) {
		g.Last = died
	}
}

// sorted returns the largest group first, and of two that are as large, the one with the latest letter.
func sorted(found map[Kin]*Group) []Group {
	groups := make([]Group, 0, len(found))
	for _, g := range found {
		groups = append(groups, *g)
	}
	slices.SortFunc(groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(b.Example, a.Example), strings.Compare(a.Shape, b.Shape))
	})
	return groups
}
