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
	"github.com/postbox-go/watermill-postbox/internal/cleanup"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/given"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Store is an inbox's memory in an SQL database. It is safe for concurrent use, by any number of processes.
type Store struct {
	config     Config
	db         *sql.DB
	place      *spool.Place
	statements *dialect.Statements
	prepared   *spool.Prepared // nil behind a pooler
	remembered remembered
	server     atomic.Pointer[string] // which it was when it was last asked
	fit        atomic.Bool            // that the database can be used has been seen
	doubts     doubts
	consumers  consumers
	slots      slots
	process    string
	logger     watermill.LoggerAdapter

	queuesMu sync.Mutex
	queues   map[string]*spool.Spool // deferred messages, by name of the queue
	ingests  map[string]*ingest      // where they come in; no new ones once closed
	closed   bool

	cleaning  sync.Once
	closing   sync.Once
	stopClean context.CancelFunc
	cleanup   context.Context //nolint:containedctx // the life of the cleanup, which Close ends
	cleaner   sync.WaitGroup
}

// New returns a store in db, whose tables [postbox.Migrate] has made. A nil logger logs nothing. Cleanup starts
// with the first message; Close ends it.
func New(db postbox.Database, config Config, logger watermill.LoggerAdapter) (*Store, error) {
	config.setDefaults()
	statements, err := spool.StatementsIn(db)
	if err := errors.Join(err, config.validate()); err != nil {
		return nil, fmt.Errorf("inbox store: %w", err)
	}
	if given.Nil(logger) {
		logger = watermill.NopLogger{}
	}
	s := &Store{
		config: config, db: db.DB, place: spool.NewPlace(db.DB, statements), statements: statements, process: spool.ProcessName(), logger: logger,
		remembered: remember(config.CacheSize), slots: slotsOf(db.DB),
		queues: map[string]*spool.Spool{}, ingests: map[string]*ingest{},
	}
	if !db.DisablePreparedStatements {
		s.prepared = spool.NewPrepared(db.DB)
	}
	s.cleanup, s.stopClean = context.WithCancel(context.Background())
	return s, nil
}

// Close ends the cleanup, and waits for what [Store.Defer] has under way, at most 30 s a commit. Handlers under way are
// not touched: [Store.Once] goes on working, but nothing cleans up behind it, so close the router first. Close can be called twice.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.closeIngests()
		s.stopClean()
		s.cleaning.Do(func() {}) // a cleanup that begins has begun by now, and none begins later
		s.cleaner.Wait()
		if s.prepared != nil {
			s.prepared.Close()
		}
	})
	return nil
}

// clean starts the cleanup, once: only who handles messages has something to clean up.
func (s *Store) clean() {
	s.cleaning.Do(func() {
		if s.cleanup.Err() != nil {
			return
		}
		cleaner := cleanup.New(s.db, s.statements, s.process+" "+postbox.NewMessageID(), cleanup.Config{
			Claims:      s.config.ClaimRetention,
			DeadLetters: s.config.DeadLetterRetention,
			Failures:    s.config.DeadLetterRetention,
			History:     true,
			Unattended:  cleanup.UnattendedAfter,
		}, s.logger)
		s.cleaner.Go(func() {
			s.place.Learn(s.cleanup)
			cleaner.Run(s.cleanup)
		})
	})
}

// checkFit returns an error if the database cannot be used as it is, and asks until it has been seen once that it can. It takes a connection,
// so a caller that has one must not call it.
func (s *Store) checkFit(ctx context.Context) error {
	if s.fit.Load() {
		return nil
	}
	err := s.statements.CheckServer(ctx, s.db)
	if errors.Is(err, dialect.ErrUnfit) {
		return fmt.Errorf("inbox: %w", err)
	}
	s.fit.Store(err == nil)
	return nil // the first statement has the same error
}

// exec executes a hot statement and returns the number of changed rows.
func (s *Store) exec(ctx context.Context, tx *sql.Tx, text string, args ...any) (int64, error) {
	result, err := s.inTx()(ctx, tx, dialect.Query{Text: text, Args: args})
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// inTx says how hot statements are executed in a transaction.
func (s *Store) inTx() spool.Exec {
	return s.prepared.InTx
}
