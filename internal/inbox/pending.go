package inbox

import (
	"context"
	"fmt"
	"strings"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// PendingQueues lists the names of the queues that have messages.
func (c *Core) PendingQueues(ctx context.Context) ([]string, error) {
	rows, err := c.DB.QueryContext(ctx, c.Statements.PendingSpools, spool.QueuePrefix+"%")
	if dialect.LacksTable(err) {
		return nil, fmt.Errorf("list queues: %w: %w", spool.ErrNoTables, err)
	}
	if err != nil {
		return nil, fmt.Errorf("list queues: %w", dialect.HideAddress(err))
	}
	defer func() { _ = rows.Close() }()
	var queues []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, fmt.Errorf("list queues: %w", err)
		}
		queues = append(queues, strings.TrimPrefix(name, spool.QueuePrefix))
	}
	return queues, rows.Err()
}
