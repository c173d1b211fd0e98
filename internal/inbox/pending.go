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
	var queues []string
	err := spool.Each(ctx, c.DB, dialect.Query{Text: c.Statements.Fullness}, func(scan spool.Scan) error {
		var name sql.NullString
		var messages bool
		err := scan(new(int64), &name, &messages)
		if queue, isQueue := strings.CutPrefix(name.String, spool.QueuePrefix); isQueue && messages {
			queues = append(queues, queue)
		}
		return err
	})
	if dialect.LacksTable(err) {
		return nil, fmt.Errorf("list queues: %w: %w", spool.ErrNoTables, err)
	}
	if err != nil {
		return nil, fmt.Errorf("list queues: %w", dialect.HideAddress(err))
	}
	slices.Sort(queues)
	return queues, nil
}
