package spool

import (
	"context"
	"database/sql"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// Scan copies the columns of a row, as [sql.Rows.Scan] does.
type Scan func(columns ...any) error

// Each calls one for each row that a query returns, until it returns an error.
func Each(ctx context.Context, db Querier, query dialect.Query, one func(scan Scan) error) error {
	rows, err := db.QueryContext(ctx, query.Text, query.Args...)
	return each(rows, err, one)
}

// Each does the same with a prepared statement, outside a transaction.
func (p *Prepared) Each(ctx context.Context, db *sql.DB, query dialect.Query, one func(scan Scan) error) error {
	rows, err := p.Query(ctx, db, query)
	return each(rows, err, one)
}

func each(rows *sql.Rows, err error, one func(scan Scan) error) error {
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := one(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// SelectIDs returns the ids that a query selects.
func SelectIDs(ctx context.Context, db Querier, query dialect.Query) (map[int64]bool, error) {
	ids := map[int64]bool{}
	err := Each(ctx, db, query, func(scan Scan) error {
		var id int64
		err := scan(&id)
		ids[id] = true
		return err
	})
	return ids, err
}
