package inbox

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// PendingQueues lists the names of the queues that have messages.
func (c *Core) PendingQueues(ctx context.Context) ([]string, error) {
	rows, err := c.DB.QueryContext(ctx, c.Statements.Fullness)
	if dialect.LacksTable(err) {
		return nil, fmt.Errorf("list queues: %w: %w", spool.ErrNoTables, err)
	}
	if err != nil {
		return nil, fmt.Errorf("list queues: %w", dialect.HideAddress(err))
	}
	defer func() { _ = rows.Close() }()
	var queues []string
	for rows.Next() {
		var id int64
		var name sql.NullString
		var messages bool
		if err := rows.Scan(&id, &name, &messages); err != nil {
			return nil, fmt.Errorf("list queues: %w", err)
		}
		if queue, isQueue := strings.CutPrefix(name.String, spool.QueuePrefix); isQueue && messages {
			queues = append(queues, queue)
		}
	}
	slices.Sort(queues)
	return queues, rows.Err()
}
