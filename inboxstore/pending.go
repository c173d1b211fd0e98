package inboxstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// ClaimRetention returns how long the store remembers handled messages. Zero or negative means for
// ever.
func (s *Store) ClaimRetention() time.Duration { return s.config.ClaimRetention }

// PendingQueues lists the names of the queues that have messages. A process that handles queues can
// use it to find queues that no handler processes.
func (s *Store) PendingQueues(ctx context.Context) ([]string, error) {
	rows, err := s.core.DB.QueryContext(ctx, s.core.Statements.PendingSpools, spool.QueuePrefix+"%")
	if dialect.LacksTable(err) {
		return nil, fmt.Errorf("list queues: %w: %w", ErrNoTables, err)
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
