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
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Config has those settings of a store that its queues need too, or the cleanup. inboxstore.Config explains them.
type Config struct {
	ClaimRetention      time.Duration
	DeadLetterRetention time.Duration
	Lanes               int
	TxOptions           *sql.TxOptions
	CloseTimeout        time.Duration
}

// Core is what a store and those who work off its queues share. It is safe for concurrent use.
type Core struct {
	Config

	DB         *sql.DB
	Place      *spool.Place
	Statements *dialect.Statements
	Prepared   *spool.Prepared // nil behind a pooler
	Slots      Slots
	Doubts     Doubts // by claim or subject

	logger watermill.LoggerAdapter
	server atomic.Pointer[string] // which it was when it was last asked

	spoolsMu sync.Mutex
	spools   map[string]*spool.Spool // by name of the queue

	cleaning  sync.Once
	stopClean context.CancelFunc
	cleanup   context.Context //nolint:containedctx // the life of the cleanup, which Close ends
	cleaner   sync.WaitGroup
}

// New returns a core in db, for which the statements are.
func New(db postbox.Database, statements *dialect.Statements, config Config, logger watermill.LoggerAdapter) *Core {
	c := &Core{
		Config: config, DB: db.DB, Place: spool.NewPlace(db.DB, statements), Statements: statements, Slots: slotsOf(db.DB),
		logger: logger, spools: map[string]*spool.Spool{},
	}
	if !db.DisablePreparedStatements {
		c.Prepared = spool.NewPrepared(db.DB)
	}
	c.cleanup, c.stopClean = context.WithCancel(context.Background())
	return c
}

// Close ends the cleanup. What is under way goes on working. It can be called twice.
func (c *Core) Close() {
	c.stopClean()
	c.cleaning.Do(func() {}) // a cleanup that begins has begun by now, and none begins later
	c.cleaner.Wait()
	c.Prepared.Close()
}

// Clean starts the cleanup, once: only who handles messages has something to clean up.
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

// Spool returns the spool of a queue, which is opened once.
func (c *Core) Spool(queue string) *spool.Spool {
	c.spoolsMu.Lock()
	defer c.spoolsMu.Unlock()
	if c.spools[queue] == nil {
		c.spools[queue] = spool.New(c.Statements, spool.QueuePrefix+queue, c.Lanes)
	}
	return c.spools[queue]
}

// InTx says how hot statements are executed in a transaction.
func (c *Core) InTx() spool.Exec {
	return c.Prepared.InTx
}
