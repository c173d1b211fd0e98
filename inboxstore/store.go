package inboxstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/given"
	"github.com/postbox-go/watermill-postbox/internal/inbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

type shared = inbox.Shared

// Store is the memory of an inbox in an SQL database. It is safe for concurrent use, by any number
// of processes.
type Store struct {
	shared

	config     Config
	core       *inbox.Core // shared with the code that processes the queues, which is why it is held
	remembered *remembered
	fit        atomic.Bool // set once the database has proved usable
	consumers  consumers
	histories  *histories
	process    string
	logger     watermill.LoggerAdapter
	refusedAt  atomic.Int64 // when a refusal was logged last, in Unix nanoseconds

	ingestsMu sync.Mutex
	ingests   map[string]*ingest // by the name of the queue; no new ones after Close
	closed    bool
	closing   sync.Once
}

// New returns a store in db, in the tables that [postbox.Migrate] has created. A nil logger logs
// nothing. Cleanup starts with the first message; Close ends it.
func New(db postbox.Database, config Config, logger watermill.LoggerAdapter) (*Store, error) {
	config.setDefaults()
	statements, err := spool.StatementsIn(db)
	if err := errors.Join(err, config.validate()); err != nil {
		return nil, fmt.Errorf("inbox store: %w", err)
	}
	if given.Nil(logger) {
		logger = watermill.NopLogger{}
	}
	core := inbox.New(db, statements, inbox.Config{
		ClaimRetention: config.ClaimRetention, DeadLetterRetention: config.DeadLetterRetention,
		TxOptions: config.TxOptions, CloseTimeout: config.CloseTimeout,
	}, logger)
	s := &Store{
		shared: inbox.Share(core), config: config, core: core, process: spool.ProcessName(), logger: logger,
		remembered: remember(config.CacheSize), ingests: map[string]*ingest{},
	}
	s.histories = newHistories(s)
	return s, nil
}

// Close ends the cleanup, and waits for the running commits of [Store.Defer], at most 30 s for
// each. It does not affect running handlers: [Store.Once] continues to work, but without the
// cleanup. So close the router first. Close can be called twice. A subscriber or a batch of package
// queue that is not closed goes on, also without the cleanup.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.closeIngests()
		s.histories.close()
		s.core.Close()
	})
	return nil
}

// checkFit returns an error if the database cannot be used as it is. It asks until the database has
// proved usable once. It takes a connection, so a caller that holds one must not call it.
func (s *Store) checkFit(ctx context.Context) error {
	if s.fit.Load() {
		return nil
	}
	s.core.Place.Learn(ctx) // before the check, which begins a transaction on SQLite
	err := s.core.Statements.CheckServer(ctx, s.core.DB)
	if errors.Is(err, dialect.ErrUnfit) {
		return fmt.Errorf("inbox: %w", err)
	}
	s.fit.Store(err == nil)
	return nil // the first statement will report the same error
}

// exec executes a hot statement and returns the number of changed rows.
func (s *Store) exec(ctx context.Context, tx *sql.Tx, text string, args ...any) (int64, error) {
	return spool.Affected(s.core.InTx()(ctx, tx, dialect.Query{Text: text, Args: args}))
}
