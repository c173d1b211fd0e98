package sources

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// errForeignTable is the reason why no row is ever taken over from a table: waiting does not change
// the table.
var errForeignTable = errors.New("it is not a table of DefaultPostgreSQLSchema or DefaultMySQLSchema")

// checkTable returns errForeignTable unless the table has the columns that are read, and no column
// which shows that rows have states of their own: a queue of watermill-sql v4
// (PostgreSQLQueueSchema, MySQLQueueSchema, and those with delays) keeps rows that are acked or not
// due.
func (t *transfer) checkTable(ctx context.Context) error {
	rows, err := t.db.QueryContext(ctx, t.tables.columns)
	if err != nil {
		return fmt.Errorf("read %s: %w", t.source.Table, err)
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err = errors.Join(err, rows.Err()); err != nil {
		return fmt.Errorf("read %s: %w", t.source.Table, err)
	}
	if slices.Contains(columns, "acked") {
		return fmt.Errorf("%s: %w: it is a queue of watermill-sql v4, whose rows may be acked or delayed: let its own subscriber consume its messages, "+
			"and have its producers publish to the outbox", t.source.Table, errForeignTable)
	}
	needed := []string{"offset", "uuid", "payload", "metadata"}
	if t.statements.Kind == dialect.Kind(postbox.PostgreSQL) {
		needed = append(needed, "transaction_id")
	}
	missing := slices.DeleteFunc(needed, func(name string) bool { return slices.Contains(columns, name) })
	if len(missing) > 0 {
		return fmt.Errorf("%s: %w: it has no column %s", t.source.Table, errForeignTable, strings.Join(missing, ", "))
	}
	return nil
}
