package inbox

import (
	"context"
	"database/sql"
)

// TransactUnguarded runs a handler in a transaction whose last statement does not notice that there
// is none any more, as on MySQL.
func (c *Core) TransactUnguarded(ctx context.Context, handle func(ctx context.Context) error, settle func(ctx context.Context, tx *sql.Tx) error) error {
	return c.Transact(ctx, ctx, Work{Handle: func(ctx context.Context, _ func() error) error { return handle(ctx) }, Settle: settle})
}

// MeetAnotherServer lets the core believe that its database has been another one until now.
func (c *Core) MeetAnotherServer() {
	another := "another one"
	c.server.Store(&another)
}
