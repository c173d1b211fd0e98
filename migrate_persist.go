package postbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// persistence is how often, and for how long, a migration is tried while others are in its way.
type persistence struct {
	pause, patience time.Duration
	tries           int // the least number: on a slow machine they take longer than the patience
	// always: any error may come from another process that migrates at the same time.
	always bool
}

// persistences: on PostgreSQL and MySQL producers have the tables for themselves during a pause.
// SQLite has no lock that spans transactions, so a process that starts second finds the file busy,
// or a table that the first one has just created. It tries again, and then sees the new version.
var persistences = map[dialect.Kind]persistence{
	dialect.PostgreSQL: {pause: time.Second, patience: 10 * time.Minute},
	dialect.MySQL:      {pause: time.Second, patience: 10 * time.Minute},
	dialect.SQLite:     {pause: 50 * time.Millisecond, patience: 2500 * time.Millisecond, tries: 50, always: true},
}

// finalError is an error that does not come from others.
type finalError struct{ error }

// persist runs migrate again while other transactions, or other processes that migrate, are in its
// way.
func persist(ctx context.Context, kind dialect.Kind, migrate func() error) error {
	p := persistences[kind]
	until := time.Now().Add(p.patience)
	for try := 1; ; try++ {
		err := migrate()
		var final finalError
		hindered := p.always || p.patience > 0 && kind.Classify(err) == dialect.Conflict
		switch {
		case err == nil, errors.Is(err, dialect.ErrDeployment), errors.As(err, &final):
			return err
		case ctx.Err() != nil && !errors.Is(err, ctx.Err()): // each driver has another error for that
			return fmt.Errorf("%w (last error: %w)", ctx.Err(), err)
		case dialect.AppliedBefore(err): // another process was faster
			continue
		case !hindered:
			return err
		case try >= p.tries && time.Now().After(until):
			return fmt.Errorf("gave up after %s of retries, since other transactions, or autovacuum on a large table, may hold locks that the migration needs: %w", p.patience, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (last error: %w)", ctx.Err(), err)
		case <-time.After(p.pause):
		}
	}
}
