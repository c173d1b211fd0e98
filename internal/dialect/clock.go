package dialect

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// maxAhead is how far the clock of the database may be ahead of that of this process.
const maxAhead = 24 * time.Hour

// Ahead returns by how much the clock of the database is ahead of that of this process, if that is
// more than a day, and otherwise 0. What is too old is decided by that clock, so while a server has
// a wrong one, nothing may be deleted for its age: it would be all dead letters and claims.
func (s *Statements) Ahead(ctx context.Context, db *sql.DB) (time.Duration, error) {
	var now int64
	if err := db.QueryRowContext(ctx, s.Clock).Scan(&now); err != nil {
		return 0, fmt.Errorf("read the clock of the database: %w", err)
	}
	if ahead := time.Until(time.UnixMicro(now)); ahead > maxAhead {
		return ahead, nil
	}
	return 0, nil
}
