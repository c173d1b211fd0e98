package inbox

import (
	"context"
	"database/sql"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/cleanup"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/meter"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/metrics"
)

// Config has the settings of a store that its queues or the cleanup need too. inboxstore.Config
// explains them.
type Config struct {
	ClaimRetention      time.Duration
	DeadLetterRetention time.Duration
	TxOptions           *sql.TxOptions
	CloseTimeout        time.Duration
}

// Core is the part that a store shares with the code that processes its queues. It is safe for
// concurrent use.
type Core struct {
	Config

	DB         *sql.DB
	Metrics    metrics.Recorder // nil: none
	Deliveries *meter.Inboxes   // nil: none
	Place      *spool.Place
	Statements *dialect.Statements
	Prepared   *spool.Prepared // nil behind a pooler
	Slots      Slots
	Doubts     Doubts // by claim or subject

	logger watermill.LoggerAdapter
	server atomic.Pointer[string] // the server that answered last

	spoolsMu sync.Mutex
	spools   map[string]*spool.Spool // by name of the queue

	cleaning  sync.Once
	stopClean context.CancelFunc
	cleanup   context.Context //nolint:containedctx // the life of the cleanup, which Close ends
	cleaner   sync.WaitGroup
}

// Shared is embedded in a store, whose core only this module can ask for.
type Shared struct{ core *Core }

// Share returns what a store embeds.
func Share(core *Core) Shared { return Shared{core} }

func (s Shared) shared() *Core { return s.core }

// CoreOf returns the core of a store. It is nil if the store was not made by its constructor.
func CoreOf(store interface{ shared() *Core }) *Core { return store.shared() }

// New returns a core in db, with the statements for that database.
func New(db postbox.Database, statements *dialect.Statements, config Config, logger watermill.LoggerAdapter) *Core {
	recorder := meter.Guarded(db.Metrics, logger)
	c := &Core{
		Config: config, DB: db.DB, Metrics: recorder, Deliveries: meter.OfInboxes(recorder, logger), Place: spool.NewPlace(db.DB, statements), Statements: statements, Slots: slotsOf(db.DB),
		logger: logger, spools: map[string]*spool.Spool{},
	}
	if !db.DisablePreparedStatements {
		c.Prepared = spool.NewPrepared(db.DB)
	}
	c.cleanup, c.stopClean = context.WithCancel(context.Background())
	return c
}

// Close ends the cleanup. Running work continues. It can be called twice.
func (c *Core) Close() {
	c.stopClean()
	c.cleaning.Do(func() {}) // a cleanup that was starting has started by now, and no other will start
	c.cleaner.Wait()
	c.Prepared.Close()
}

// Clean starts the cleanup, once: only a process that handles messages has something to clean up.
func (c *Core) Clean() {
	c.cleaning.Do(func() {
		if c.cleanup.Err() != nil {
			return
		}
		cleaner := cleanup.New(c.DB, c.Statements, spool.ProcessName()+" "+postbox.NewMessageID(), cleanup.Config{
			Claims:      c.ClaimRetention,
			DeadLetters: c.DeadLetterRetention,
			Failures:    c.DeadLetterRetention,
			History:     true,
			Unattended:  cleanup.UnattendedAfter,
		}, c.logger)
		c.cleaner.Go(func() {
			c.Place.Learn(c.cleanup)
			cleaner.Run(c.cleanup)
		})
	})
}

// Spool returns the spool of a queue, one for all calls.
func (c *Core) Spool(queue string) *spool.Spool {
	c.spoolsMu.Lock()
	defer c.spoolsMu.Unlock()
	if c.spools[queue] == nil {
		c.spools[queue] = spool.New(c.Statements, spool.QueuePrefix+queue)
	}
	return c.spools[queue]
}

// InTx returns the function that executes hot statements in a transaction.
func (c *Core) InTx() spool.Exec {
	return c.Prepared.InTx
}
