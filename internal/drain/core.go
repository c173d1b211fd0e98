package drain

import (
	"database/sql"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// core is what the rooms of the engine share: the spool, and the rooms that each of them may ask. Apart
// from the scheduler, and what is set once, it belongs to the goroutine of Run.
type core struct {
	db         *sql.DB
	prepared   *spool.Prepared
	spool      *spool.Spool
	id         int64
	configured Config
	config     Config // with the stored settings
	logger     watermill.LoggerAdapter
	scheduler  *schedule.Scheduler
	lanes      *laneSet
	pace       pace
	past       past
	// databaseAhead is how far the database's clock was ahead of this process's at the last read.
	databaseAhead time.Duration
}
