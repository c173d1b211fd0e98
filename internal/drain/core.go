package drain

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// core is what the components of the engine share: the spool, the lanes that are held, and what
// each of them may ask or say. The fields from config on belong to the goroutine of Run, but for
// the pulse.
type core struct {
	db         *sql.DB
	prepared   *spool.Prepared
	spool      *spool.Spool
	id         atomic.Int64 // of the spool; a restored database may have another one
	configured Config
	logger     watermill.LoggerAdapter
	scheduler  *schedule.Scheduler
	config     Config // with the stored settings
	lanes      *laneSet
	control    control
	pace       pace
	past       past
	trouble    trouble
	pulse      pulse
	// databaseAhead is how far the database's clock was ahead of this process's at the last read.
	databaseAhead time.Duration
}

// distrustLanes makes the drainer read all lanes from the beginning and renew its leases. It is
// called when a message could not be settled: its lane was lost, or the answer to an earlier try
// was lost. The state of such messages must be known before later messages of their keys are handed
// out.
func (c *core) distrustLanes() {
	c.lanes.rewind()
	c.pace.renewAt = time.Time{}
}

// execIsolated executes a statement that must not wait for unrelated rows, see
// [dialect.Statements.Isolate].
func (c *core) execIsolated(ctx context.Context, query dialect.Query) error {
	if c.spool.Statements.Isolate {
		return spool.InTx(ctx, c.db, c.spool.Statements, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, query.Text, query.Args...)
			return err
		})
	}
	_, err := c.prepared.Exec(ctx, c.db, query)
	return err
}

// readFrom makes the next read begin with this message, and be soon.
func (c *core) readFrom(ref dialect.Ref) {
	c.lanes.lower(ref.Lane, ref.ID)
	c.pace.now()
}

// member returns the identity of this drainer in the database.
func (c *core) member() dialect.Member {
	return dialect.Member{Spool: c.id.Load(), Holder: c.config.Holder}
}
